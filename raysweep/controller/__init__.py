"""A sweep as it runs: trials handed out, rungs taken in, every event in the ledger before it counts; budget, disk, resume.

The runner drives it through Ray Tune; it imports no Ray itself, so that tests drive it with invented rungs.
"""
