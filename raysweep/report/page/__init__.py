"""The self-contained page report.html: a view of a sweep, to choose from its front and see how to use the choice.

Tables are HTML and work without a script; the script draws the charts from data embedded in the page. Called by
:mod:`raysweep.report.write`.
"""
