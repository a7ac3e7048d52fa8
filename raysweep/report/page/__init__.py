"""The self-contained page ``report.html``, for choosing a point on a sweep's front and learning how to use it.

Tables are HTML and work without a script; the script draws the charts from data embedded in the page. Called by
:mod:`raysweep.report.write`.
"""
