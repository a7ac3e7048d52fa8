"""Uncertainty of a front: intervals, stability, and the noise due to queries, seeds and selection.

The package is pure arithmetic on per-query scores, with one array per split. Reports and run comparisons use it.
"""
