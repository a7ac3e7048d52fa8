"""Requests to a running sweep and its answers.

The ``control`` command adds a request to the run's request queue.
:mod:`raysweep.controller.request_handler` executes and answers it.
"""
