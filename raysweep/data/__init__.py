"""Labeled sentences, from sources to training data: datasets, neighbors, examples, content-addressed artifacts.

Everything here runs in one process, on one shard. The package ``prepare`` distributes it over a cluster; evaluation and
training open the prepared artifacts.
"""
