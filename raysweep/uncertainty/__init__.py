"""Uncertainty of a front: intervals, stability, and noise from queries, seeds and selection.

Pure arithmetic over per-query scores, one array per split, used by the report and by the comparison of runs.
"""
