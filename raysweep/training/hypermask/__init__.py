"""HyperMask: one network learns a sequence of tasks, each under its own mask (Książek and Spurek 2023, arXiv:2310.00113).

A hypernetwork maps a trainable embedding of each task to a mask for the target network's weights. The target network
and the hypernetwork are trained together; two penalties preserve the masks and weights of earlier tasks.
"""
