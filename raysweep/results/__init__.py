"""What a run has stored: the ledger of typed events, tables read from it, views of them, and the account of costs.

A sweep writes the ledger; report, export, replay and warm starts read it.
"""
