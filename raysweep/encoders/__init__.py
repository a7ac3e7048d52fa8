"""Sentence encoders: finding and loading them, tokens, batches cut by length, precision, and the cache of a frozen part.

Prepare embeds sentences with them, evaluation scores them, training tunes them.
"""
