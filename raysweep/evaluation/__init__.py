"""Retrieval scores of an encoder: queries of one split against the pool, and the encoder's operating points.

Training uses it to score rungs, the runner to score the reference, the oracle and baselines, and the ``evaluate``
command to score files.
"""
