"""A point of the front as an ordinary sentence-transformers model, which loads without raysweep.

The command ``export`` and the public API call it.
"""
