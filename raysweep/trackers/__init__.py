"""A sweep in TensorBoard, MLflow, Weights & Biases and Trackio, fed from the ledger through their own clients.

The runner feeds them while a sweep runs; the command ``track`` feeds them afterwards.
"""
