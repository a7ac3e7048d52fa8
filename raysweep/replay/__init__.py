"""Recorded sweeps as tables, and searches simulated on them with workers and a clock, without training.

Used by the commands ``table`` and ``replay`` and by the search benchmarks.
"""
