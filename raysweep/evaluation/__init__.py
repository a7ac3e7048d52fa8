"""Retrieval scores of an encoder: queries of one split against the pool, and the encoder's operating points.

Training scores each rung with it; the runner scores the reference, the oracle and baselines; the command ``evaluate``
scores files.
"""
