"""Measures the front's members by evaluators of sentence-transformers, over files that a sweep names as guards.

The runner calls it when the search is over.
"""
