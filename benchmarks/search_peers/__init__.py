"""Searches behind the interface :class:`raysweep.replay.simulator.Peer`: raysweep's own, and other libraries in expert
settings.

All peers propose from the same space, know the maximum budget of a trial, and receive scores in the recording's own unit. A
single objective is the trial's area: the hypervolume of all points of its rungs so far. Two objectives are P and S of the
best point under 0.5 P + 0.5 S. raysweep's own aim ``front`` learns all points, which is the same if a trial has one. Time,
for schedulers that count it, is the budget in units of the recording's first: the rung's number if rungs are even. A run is
determined by its seed, including the global generators, which Syne Tune and BoTorch use and which are seeded before each
run.
"""
