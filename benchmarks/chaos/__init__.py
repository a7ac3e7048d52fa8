"""Sweeps under faults of processes, nodes, drivers and disks, and checks of their trials."""
