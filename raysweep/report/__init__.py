"""Tables, figures, Markdown, HTML and Parquet made from a run's stored results. Needs neither a cluster nor an encoder.

The commands ``run`` and ``report`` write the report; export uses it to find the points on the front.
"""
