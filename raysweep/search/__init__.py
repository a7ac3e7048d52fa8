"""What to try next and what to stop: proposals from samplers, early stopping, replicates. No clock, no files, no Ray.

A sweep feeds it what happens and does what it decides; a replay does the same with a simulated clock.
"""
