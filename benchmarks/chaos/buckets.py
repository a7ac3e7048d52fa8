"""Faults of buckets, with a real S3 API on a loopback socket."""

import dataclasses
import importlib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks import measure
from benchmarks.chaos import prepares
from benchmarks.chaos.outcomes import Outcome, Recovery, Setting, outcome
from benchmarks.chaos.sweeps import (
    SweepProcess,
    num_rungs,
    start_seconds,
    wait_for_calm,
    wait_for_rung,
)

OUTAGE_SECONDS = 60.0
TRIALS, RUNGS = 4, 6


@contextmanager
def bucket(setting: Setting) -> Iterator[tuple[Setting, Any]]:
    """Yield the setting with runs and artifacts in a bucket, and the bucket's server."""
    sys.path.insert(0, str(measure.ROOT / "tests"))  # whose server this is
    with importlib.import_module("support.s3_server").s3_server() as server:
        place = server.uri("chaos")
        prepares.prepare(place, prepares.OPTIONS)
        yield dataclasses.replace(setting, artifacts=f"{place}/artifacts", bucket=place), server


def cut_off(setting: Setting) -> Outcome:
    """Let all requests to the bucket fail for a minute, repeatedly; each outage's end counts as its report."""
    with bucket(setting) as (in_bucket, server):
        plan = in_bucket.plan("outage", TRIALS * setting.times, RUNGS, ["--resources.num_cpus=2"])
        recoveries = []
        with SweepProcess(plan) as sweep:
            for _ in range(setting.times):
                wait_for_calm(sweep)
                struck_at, num_before = time.time(), num_rungs(plan)
                server.fail(outage=OUTAGE_SECONDS)
                time.sleep(OUTAGE_SECONDS)
                ended_at = time.time()
                again_at = wait_for_rung(sweep, num_before)
                recoveries.append(Recovery(struck_at, ended_at, again_at))
            code = sweep.end()
        result = outcome(plan, recoveries, start_seconds(plan))
    if code:
        result.problems.append(f"the driver ended with {code}: {sweep.tail}")
    return result
