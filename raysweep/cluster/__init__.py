"""The Ray cluster: joining it, its resources, waiting for nodes, and nodes that are about to be preempted.

Prepare and the adapter of Ray Tune call it.
"""
