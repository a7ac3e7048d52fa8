"""Tables, figures, Markdown, HTML and Parquet from a run's stored results, without a cluster or an encoder.

The ``run`` and ``report`` commands write the report; ``export`` uses this package to find the points on the front.
"""
