"""Storage for runs and artifacts in file system folders and object stores, with atomic writes and locks.

All code that reads or writes a run or an artifact uses this package, which does not depend on their contents.
"""
