"""Plan a sweep's artifacts and build the missing ones with Ray Data.

Preparation precedes the search. ``prepare_here`` builds the same artifacts in one process, without Ray.
"""
