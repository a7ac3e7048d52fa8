"""Sweeps on Ray for sentence embeddings that keep both class and meaning."""

__version__ = "0.1.0"
