"""The public API: the functions and types in ``import raysweep``.

It serves scripts, notebooks and the command line. Each function imports its dependencies when it is called.
"""
