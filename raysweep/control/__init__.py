"""Requests to a running sweep, and the sweep's answers.

The ``control`` command adds a request to the run's request queue, and :mod:`raysweep.controller.request_handler`
executes and answers it.
"""
