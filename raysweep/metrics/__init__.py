"""Retrieval scores (polarity, similarity), ranking measures, fronts, hypervolumes, the oracle and the objective.

The package is pure arithmetic on arrays and pairs. Evaluation computes scores with it; search and report compare them.
"""
