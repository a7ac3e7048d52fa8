"""A live view of a run in a terminal: its trials, and its front as a table and a character plot.

The ``watch`` command shows it, reading only the ledger and writing nothing to the run.
"""
