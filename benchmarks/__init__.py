"""Benchmarks: ``python -m benchmarks.NAME [--quick] [--json]`` from the repository's root. They assert no timings."""
