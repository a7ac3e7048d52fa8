"""The command line: one subcommand a stage. It reads arguments, calls a stage, and prints what comes back.

``raysweep`` and ``python -m raysweep`` enter here; torch and Ray are imported only by the commands that use them.
"""
