"""Sweeps whose processes, nodes, drivers and disks fail, and what becomes of their trials."""
