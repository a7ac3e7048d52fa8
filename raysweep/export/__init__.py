"""Export of a point of the front as a sentence-transformers model, which loads without raysweep.

The command ``export`` and the public API call it.
"""
