"""Retrieval scores (polarity, similarity), ranking measures, fronts, hypervolumes, the oracle and the objective.

The package is pure arithmetic on arrays. Evaluation uses it to compute scores; search and reports use it to compare
them.
"""
