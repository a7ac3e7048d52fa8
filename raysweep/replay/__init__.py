"""Recordings of sweeps, and simulated searches that replay them instead of training.

Used by the ``record`` and ``replay`` commands and the search benchmarks.
"""
