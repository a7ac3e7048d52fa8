"""The public API: the functions and types of ``import raysweep``.

It serves scripts, notebooks and the command line. Every function imports its dependencies when
it is called.
"""
