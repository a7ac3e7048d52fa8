"""The version of raysweep, which a run writes into its ledger."""

__version__ = "0.1.0"
