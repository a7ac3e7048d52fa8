"""From sources to artifacts on Ray Data: which artifacts a sweep needs, which are missing, and building them.

The runner prepares before it searches; without Ray, ``prepare_here`` builds the same artifacts in one process.
"""
