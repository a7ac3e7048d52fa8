"""Trackers that log a sweep to TensorBoard, MLflow, Weights & Biases and Trackio through the services' own clients.

All data comes from the events in the ledger. The runner passes them to the trackers during a sweep, and the ``track``
command does so afterwards.
"""
