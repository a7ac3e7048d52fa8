"""Tables and figures of runs, recordings and published scores in the layouts of papers: Markdown, LaTeX, CSV, PNG.

The commands ``paper`` and ``evaluate`` write these files with :mod:`raysweep.paper.write`.
"""
