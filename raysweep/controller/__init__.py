"""The controller of a running sweep: assigns trials, records rungs in the ledger, manages budget, disk and resuming.

The runner drives it through Ray Tune. It does not import Ray, so tests can drive it with made-up rungs.
"""
