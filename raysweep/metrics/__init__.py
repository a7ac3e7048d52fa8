"""What retrieval is worth: polarity and similarity, fronts and hypervolume, the oracle front, the objective of a sweep.

Pure arithmetic over arrays and pairs. Evaluation computes scores with it, search and report compare them.
"""
