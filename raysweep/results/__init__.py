"""Stored results of a run: a ledger of typed events, the tables built from it, views of these tables, and costs.

Sweeps write the ledger; reports, exports, replays and warm starts read it.
"""
