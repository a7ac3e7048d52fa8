"""Early stopping policies, which decide which trials continue, pause and resume.

The scheduler consults one of them at every rung; ``policies`` creates the one named in the sweep file.
"""
