"""Helpers of several tests. Importing them limits threads, so this precedes the import of NumPy, torch and faiss.

Tests, and the sweeps that they start, run side by side. If each process had a thread per core, or its threads spun while
they wait for each other, the same computation would take several times as long.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
