"""A run while it grows, in a terminal: its trials, its front as a table and as a plot of characters.

The command ``watch`` shows it, from the ledger alone. Nothing is written to the run.
"""
