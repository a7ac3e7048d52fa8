"""The public API: the functions and types that ``import raysweep`` offers, each documented with what it raises.

Scripts and notebooks call it, and the command line where both do the same. Every function imports what it needs when it
is called.
"""
