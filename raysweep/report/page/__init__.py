"""The self-contained page report.html: a view of a sweep for choosing a point from its front and seeing how to use it.

Tables are HTML and work without a script; the script draws the charts from data embedded in the page. Called by
:mod:`raysweep.report.write`.
"""
