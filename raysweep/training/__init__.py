"""Training of one trial: fine-tune an encoder rung by rung, score each rung and save checkpoints, without Ray.

A trial is an ordinary function. The runner calls it in Ray Tune actors; tests, notebooks and debuggers call it in
their own process.
"""
