"""Results in the layouts of papers, from runs, recordings and published scores: Markdown, LaTeX, CSV and PNG.

The commands ``paper`` and ``evaluate`` write them with :mod:`raysweep.paper.write`.
"""
