"""A complete run on Ray: preparation, baseline scores, the search on Ray Tune, and test scores of the front.

Called by the ``run`` and ``prepare`` commands and by the public API. No lower layer imports Ray Tune.
"""
