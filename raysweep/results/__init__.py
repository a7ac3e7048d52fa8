"""The stored results of a run: the ledger of typed events, tables read from it, views of the tables, and costs.

A sweep writes the ledger. Reports, exports, replays and warm starts read it.
"""
