"""Evaluation of frozen encoders on other tasks: classification, and correlation of similarities with gold scores.

The ``transfer`` command uses this package to compare models side by side.
"""
