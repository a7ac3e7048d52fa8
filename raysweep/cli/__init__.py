"""Command line with one subcommand per stage: it reads arguments, calls the stage, and prints the result.

``raysweep`` and ``python -m raysweep`` start here. Only the commands that need torch and Ray import them.
"""
