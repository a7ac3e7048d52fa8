"""Sentence encoders: locating and loading, tokens, length buckets, precision, and the cache of frozen layers.

``prepare`` embeds sentences with them, ``evaluation`` scores them, ``training`` tunes them.
"""
