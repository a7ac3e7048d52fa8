"""The decisions of a search: proposals from samplers, early stopping and replicates, without a clock, files or Ray.

A sweep feeds it events and carries out its decisions; a replay does the same with a simulated clock.
"""
