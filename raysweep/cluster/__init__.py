"""The Ray cluster: connection, capacity, pending work, heartbeats and preemption notices.

``prepare`` and the Ray Tune adapter use this package.
"""
