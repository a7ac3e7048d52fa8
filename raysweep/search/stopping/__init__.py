"""Policies of early stopping: which trials go on, which are held, and which held trial is resumed.

The scheduler asks one of them at every rung; ``factory`` makes the one that a sweep's file names.
"""
