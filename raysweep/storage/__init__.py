"""Storage for runs and artifacts: folders of file systems, and prefixes of object stores with atomic writes and locks.

Used by all code that reads or writes a run or an artifact. Nothing here depends on their contents.
"""
