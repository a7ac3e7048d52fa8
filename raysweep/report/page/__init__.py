"""report.html: one page that needs nothing else, to look at a sweep, choose from its front and see how to use the choice.

Tables are HTML and stand without a script; the script draws the charts from the data that the page carries.
Called by :mod:`raysweep.report.write`.
"""
