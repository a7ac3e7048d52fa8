"""Typed, frozen configuration: a sweep, its search space, and one trial.

The command line and the public API parse YAML and overrides into these types once; every other package receives the
result.
"""
