"""Sentence encoders: locating and loading, tokens, length buckets, precision, and the frozen-layer cache.

``prepare`` embeds sentences with them, ``evaluation`` scores them, and ``training`` tunes them.
"""
