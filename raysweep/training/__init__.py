"""Training of one trial without Ray: fine-tuning an encoder rung by rung, scoring each rung and saving checkpoints.

A trial is an ordinary function. The runner calls it in Ray Tune actors; tests, notebooks and debuggers call it in
their own process.
"""
