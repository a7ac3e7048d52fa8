"""Uncertainty of a front: intervals, stability, and the noise due to queries, seeds and selection.

Pure arithmetic on per-query scores, with one array per split, used in reports and run comparisons.
"""
