"""The controller of a running sweep: trial assignment, rung recording, budgets, disk usage and resuming.

The runner drives the controller through Ray Tune. The controller itself does not import Ray, so tests can drive it with
synthetic rungs.
"""
