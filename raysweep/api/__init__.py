"""The public API: the functions and types of ``import raysweep``.

Scripts and notebooks use it, and so do commands with the same function. Every function imports its dependencies when
it is called.
"""
