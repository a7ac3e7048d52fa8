"""Scores and measures of encoders and of their operating points, on labeled sentences, retrieval data and pairs.

Training scores rungs with this package, and the runner scores the reference encoder, the oracle and the baselines. The
commands ``evaluate``, ``measure`` and ``transfer`` apply it to files.
"""
