"""Frozen encoders on other tasks: a classifier on embeddings, and the correlation of cosines with gold scores.

The ``transfer`` command uses this package to compare models side by side.
"""
