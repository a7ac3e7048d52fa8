"""How far a front can be trusted: intervals, stability, and what is noise of queries, of seeds or of selection.

Pure arithmetic over per-query scores, an array a split. The report and the comparison of runs call it.
"""
