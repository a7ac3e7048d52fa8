"""Helpers for several test modules; no tests."""
