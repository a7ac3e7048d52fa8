"""What a run has stored: the append-only ledger, typed values read from it, views of them, and the account of costs.

A sweep writes the ledger; report, export, replay and warm starts read it.
"""
