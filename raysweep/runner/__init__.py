"""A whole run on Ray: prepare, reference and oracle scores, the search on Ray Tune, test scores of the front.

The commands ``run`` and ``prepare`` and the public API call it. Nothing below it knows of Ray Tune.
"""
