"""Search decisions: sampler proposals, early stopping and replicates. They need no clock, files or Ray.

A sweep feeds events to the scheduler and carries out its decisions; a replay does the same with a simulated clock.
"""
