"""Sentence encoders: locating and loading, tokens, length buckets, precision, and the frozen-layer cache.

The package ``prepare`` embeds sentences with encoders, ``evaluation`` scores encoders, and ``training`` tunes them.
"""
