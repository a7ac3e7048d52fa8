"""Results from runs, recordings and published scores, in the layouts used by papers: Markdown, LaTeX, CSV and PNG.

The commands ``paper`` and ``evaluate`` write these files with :mod:`raysweep.paper.write`.
"""
