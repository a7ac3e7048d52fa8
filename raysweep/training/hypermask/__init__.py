"""HyperMask: one network learns task after task, each under its own mask (Książek and Spurek 2023, arXiv:2310.00113).

A hypernetwork maps a trainable embedding of each task to a mask of the target network's weights. Target network and
hypernetwork are trained together; two penalties keep the masks and the weights of earlier tasks.
"""
