"""Trackers that log a sweep to TensorBoard, MLflow, Weights & Biases and Trackio through the services' own clients.

All data comes from the ledger: during a sweep the runner passes it on, and afterwards the ``track``
command does.
"""
