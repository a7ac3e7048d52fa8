"""Scoring an encoder by retrieval: one split's queries against the pool, and the operating points that one encoder holds.

Training scores each rung with it, the runner the reference, the oracle and baselines, and the command ``evaluate`` files.
"""
