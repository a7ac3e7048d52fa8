"""Frozen encoders on other tasks: a classifier on their embeddings, and the correlation of their cosines with gold scores.

The command ``transfer`` compares models side by side with it.
"""
