"""Labelled sentences from their sources to what training reads: datasets, neighbours, examples, content-addressed artifacts.

Everything here runs in one process, on one shard. Prepare spreads it over a cluster; evaluation and training open what
was prepared.
"""
