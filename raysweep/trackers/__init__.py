"""A sweep in TensorBoard, MLflow, Weights & Biases and Trackio, through their own clients, fed from the ledger's events.

The runner feeds them while a sweep runs, and the command ``track`` afterwards.
"""
