"""From sources to artifacts on Ray Data: planning the artifacts of a sweep and building the missing ones.

The runner prepares before it searches. ``prepare_here`` builds the same artifacts in one process, without Ray.
"""
