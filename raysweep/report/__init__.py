"""What a run's stored results say, as tables, figures, Markdown, HTML and Parquet. Needs no cluster and no encoder.

The commands ``run`` and ``report`` write it; export asks it which points are on the front.
"""
