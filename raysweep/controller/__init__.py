"""Controller of a running sweep: assigns trials, records rungs in the ledger, and manages budget, disk and resuming.

The runner drives it through Ray Tune. It does not import Ray itself, so tests can drive it with made-up rungs.
"""
