"""A live view of a run in a terminal: its trials, and its front as a table and as a plot of characters.

The command ``watch`` shows it, reading only the ledger. Nothing is written to the run.
"""
