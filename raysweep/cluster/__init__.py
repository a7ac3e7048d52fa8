"""The Ray cluster: joining it, its resources, waiting for nodes, and nodes about to be preempted.

Used by prepare and by the Ray Tune adapter.
"""
