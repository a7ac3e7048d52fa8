"""A whole run on Ray: prepare, scores of reference, oracle and baselines, the search on Ray Tune, test scores of the front.

The commands ``run`` and ``prepare`` and the public API call it. Nothing below it knows of Ray Tune.
"""
