"""A complete run on Ray: preparation, baselines, the search on Ray Tune, and the front's scores on test.

Used by the ``run`` and ``prepare`` commands and the public API. No lower layer imports Ray Tune.
"""
