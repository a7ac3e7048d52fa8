"""Retrieval scores (polarity, similarity), fronts and hypervolumes, the oracle front, and a sweep's objective.

Pure arithmetic over arrays and pairs. Evaluation computes scores with it; search and report compare them.
"""
