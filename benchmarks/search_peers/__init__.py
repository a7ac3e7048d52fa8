"""Searches behind the calls of :class:`raysweep.replay.simulator.Peer`: raysweep's own, and other libraries as an expert
would set them up.

Everybody proposes from the same space, knows how long trials may get, and is told scores in the table's own unit. What a
trial is worth where one number is asked for is its area: the hypervolume of all points of its rungs so far. Where two are
asked for, it is the best point under 0.5 P + 0.5 S. raysweep's own aim ``front`` learns all points; where a trial has one,
that is as much. Time, for schedulers that count it, is the budget in units of the table's first: the rung's number where
rungs are even. A run is determined by its seed, the global generators included, which Syne Tune and BoTorch draw from and
which have to be seeded before each run.
"""
