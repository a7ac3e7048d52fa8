"""One trial: an ordinary function that trains an encoder rung by rung, scores each rung and keeps checkpoints. No Ray.

The runner calls it in Ray Tune's actors; tests, notebooks and debuggers call it in their own process.
"""
