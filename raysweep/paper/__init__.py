"""Tables and figures for papers, from runs and recorded tables: Markdown, LaTeX, CSV and PNG.

The commands ``tables`` and ``evaluate`` write them with :mod:`raysweep.paper.write`.
"""
