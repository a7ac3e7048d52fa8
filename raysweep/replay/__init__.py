"""Recorded sweeps as tables, and searches simulated on them with workers and a clock, without any training.

The commands ``table`` and ``replay`` call it, and the benchmarks of searches.
"""
