"""Data of a sweep: sources, datasets, nearest neighbors, training examples and content-addressed artifacts.

This package works on one shard at a time, in one process. :mod:`raysweep.prepare` distributes the work over a cluster;
evaluation and training read the prepared artifacts.
"""
