"""Search decisions: sampler proposals, early stopping and replicates. Independent of the clock, files and Ray.

A sweep feeds events to the scheduler and carries out its decisions; a replay does the same with a simulated clock.
"""
