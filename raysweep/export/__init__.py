"""Export of a front point as a sentence-transformers model, which loads without raysweep.

The ``export`` command and the public API use this package.
"""
