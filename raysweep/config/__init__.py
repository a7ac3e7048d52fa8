"""Typed, frozen configuration for a sweep, its search space, and a single trial.

The command line and the public API parse YAML and overrides into these types once; every other package receives the
result.
"""
