"""HyperMask: one network learns a sequence of tasks, each with its own mask (Książek and Spurek 2023, arXiv:2310.00113).

A hypernetwork maps a trainable embedding of each task to a mask for the target network's weights. Both networks are
trained jointly. Two penalties preserve the masks and weights of earlier tasks.
"""
