"""Retrieval scores (polarity, similarity), measures of rankings, fronts, hypervolumes, the oracle, and the objective.

Pure arithmetic over arrays and pairs. Evaluation computes scores with it; search and report compare them.
"""
