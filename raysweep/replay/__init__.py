"""Recordings of sweeps, and searches simulated on them with workers and a clock, without training.

Used by the commands ``record`` and ``replay`` and by the search benchmarks.
"""
