"""The command line, whose subcommands parse arguments, call a stage and print its result.

``raysweep`` and ``python -m raysweep`` start here. Commands import torch and Ray only if they need them.
"""
