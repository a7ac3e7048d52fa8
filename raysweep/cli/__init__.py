"""The command line, with a subcommand for each stage: it reads arguments, calls the stage and prints the result.

``raysweep`` and ``python -m raysweep`` start here. Commands import torch and Ray only if they need them.
"""
