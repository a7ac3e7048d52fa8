"""Storage for runs and artifacts: file system folders, and object store prefixes with atomic writes and locks.

All code that reads or writes a run or an artifact uses this package, which knows nothing about their contents.
"""
