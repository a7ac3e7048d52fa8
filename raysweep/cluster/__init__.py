"""The Ray cluster: joining it, its resources, waiting for nodes, and notices of nodes that are about to go away.

Used by ``prepare`` and by the Ray Tune adapter.
"""
