"""Reports built from a run's stored results, without a cluster or an encoder.

A report contains tables and figures as Markdown, HTML, PNG, JSON and Parquet. The ``run`` and ``report`` commands write
it; ``export`` uses this package to find the points on the front.
"""
