"""Recordings of sweeps, and searches simulated on them with workers and a clock instead of training.

The commands ``record`` and ``replay`` and the search benchmarks use this package.
"""
