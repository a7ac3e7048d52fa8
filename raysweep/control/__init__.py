"""Requests to a sweep that is running, and its answers.

The command ``control`` leaves a request in the run's storage.
:mod:`raysweep.controller.request_desk` acts on it and answers.
"""
