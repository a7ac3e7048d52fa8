"""Runs written to each tracker, read back by its own reader if it has one, and compared with the ledger."""

import importlib
import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from raysweep.config.trackers import TrackersConfig
from raysweep.results.events import SessionFinished, TrialEnded, TrialResumed
from raysweep.results.ledger import Ledger
from raysweep.results.types import TrialStatus
from raysweep.storage.folder import LocalFolder
from raysweep.trackers import tracking
from raysweep.trackers.opening import Destination, tracker_openers
from support.command_line import raysweep_here
from support.ledgers import StoredSweep, StoredTrial, point, write_ledger

TRIALS = [
    StoredTrial(
        {"loss": "triplet", "learning_rate": 1e-5},
        "completed",
        "done",
        [(0.70, 0.44), (0.75, 0.43)],
    ),
    StoredTrial({"loss": "softmax", "learning_rate": 2e-5}, "paused", "waits", [(0.72, 0.435)]),
    StoredTrial({"loss": "softmax", "learning_rate": 1.0}, "failed", "diverged", []),
]

Curves = dict[int, dict[int, dict[str, float]]]
"""Metrics by trial and step."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "night-1"
    folder.mkdir()
    write_ledger(folder, TRIALS)
    return folder


def resume_paused_trial(run: Path) -> None:
    """Add a rung and the end of the paused trial to the ledger, as after a resume."""
    from raysweep.results.events import RungFinished

    ledger = Ledger(run)
    ledger.append(TrialResumed(trial=1))
    points = (point(1, 2, 0.78, 0.41),)
    ledger.append(
        RungFinished(
            trial=1, step=2, examples_seen=4096, seconds=9.0, loss=0.05, stop=None, points=points
        )
    )
    ledger.append(TrialEnded(trial=1, status=TrialStatus.COMPLETED, reason="done"))
    ledger.append(SessionFinished(status="plateau", reason="no growth", seconds=9.0))
    ledger.close()


def curves_of_ledger(run: Path) -> Curves:
    """Return the curves in the ledger's lines. Each rung has one point, which is plain."""
    curves: Curves = {}
    for line in (run / "ledger.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "rung":
            (scored,) = event["points"]
            scores = {name: scored[name] for name in ("polarity", "similarity", "retention")}
            metrics = {name: event[name] for name in ("loss", "examples_seen", "seconds")}
            metrics |= {**scores, **{f"plain/{name}": value for name, value in scores.items()}}
            metrics["objective"] = (scored["polarity"] + scored["similarity"]) / 2
            curves.setdefault(event["trial"], {})[event["step"]] = metrics
    return curves


def check_curves(curves: Curves, run: Path) -> None:
    expected = curves_of_ledger(run)
    assert curves.keys() == expected.keys()
    for trial, steps in expected.items():
        assert curves[trial].keys() == steps.keys()
        for step, metrics in steps.items():
            assert curves[trial][step] == pytest.approx(metrics, rel=1e-6)


def fill_repeatedly(run: Path, settings: Mapping[str, Any]) -> None:
    """Track a run twice, and again after a resume."""
    config = TrackersConfig.model_validate(settings)
    for _ in range(2):
        tracking.fill(config, LocalFolder(run))
    resume_paused_trial(run)
    tracking.fill(config, LocalFolder(run))


def add(curves: Curves, name: str, step: int, metric: str, value: float) -> None:
    """Add a value; fail if the step already has one."""
    steps = curves.setdefault(int(name.rpartition("-")[2]), {})
    assert metric not in steps.setdefault(step, {}), "duplicate value"
    steps[step][metric] = value


def test_tensorboard_event_files(run: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fill_repeatedly(run, {"tensorboard": {}})
    curves: Curves = {}
    texts: dict[str, str] = {}
    for folder in sorted((run / "tensorboard").iterdir()):
        assert len(list(folder.iterdir())) == 1
        events = EventAccumulator(
            str(folder), size_guidance={"scalars": 0, "tensors": 0, "images": 0}
        )
        events.Reload()
        tags = events.Tags()
        for tag in tags["tensors"]:
            texts[f"{folder.name}/{tag}"] = (
                events.Tensors(tag)[-1].tensor_proto.string_val[0].decode()
            )
        if folder.name == "front":
            (image,) = events.Images("front")
            assert image.encoded_image_string.startswith(b"\x89PNG")
            assert (image.width, image.height) > (100, 100)
            assert events.Scalars("members")[-1].value == 4
            continue
        for tag in tags["scalars"]:
            for scalar in events.Scalars(tag):
                add(curves, folder.name, scalar.step, tag, scalar.value)
    check_curves(curves, run)
    assert texts["trial-0000/configuration"] == "- loss: triplet\n- learning_rate: 1e-05"
    assert texts["trial-0001/status"] == "completed: done"
    assert texts["trial-0002/status"] == "failed: diverged"
    assert "75.0" in texts["front/front"]


@pytest.mark.ray
def test_mlflow_local_store(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    fill_repeatedly(run, {"mlflow": {}})
    client = MlflowClient(tracking_uri=f"sqlite:///{run.parent / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("night-run")
    runs = {
        stored.info.run_name: stored for stored in client.search_runs([experiment.experiment_id])
    }
    sweep = runs.pop("night-1")
    assert sorted(runs) == [f"night-1 trial-000{number}" for number in range(3)]
    assert {stored.data.tags["mlflow.parentRunId"] for stored in runs.values()} == {
        sweep.info.run_id
    }
    assert (sweep.info.status, sweep.data.tags["raysweep.status"]) == ("FINISHED", "plateau")
    assert "mlflow.parentRunId" not in sweep.data.tags
    assert sweep.data.metrics["members"] == 4
    assert sorted(artifact.path for artifact in client.list_artifacts(sweep.info.run_id)) == [
        "front.md",
        "front.png",
    ]
    picture = client.download_artifacts(sweep.info.run_id, "front.png", str(run.parent))
    assert Path(picture).read_bytes().startswith(b"\x89PNG")
    curves: Curves = {}
    for name, stored in runs.items():
        for tag in stored.data.metrics:
            for metric in client.get_metric_history(stored.info.run_id, tag):
                add(curves, name, metric.step, tag, metric.value)
    check_curves(curves, run)
    trials = [runs[f"night-1 trial-000{number}"] for number in range(3)]
    assert [trial.info.status for trial in trials] == ["FINISHED", "FINISHED", "FAILED"]
    assert trials[0].data.params == {"loss": "triplet", "learning_rate": "1e-05"}
    assert trials[2].data.tags["raysweep.reason"] == "diverged"


@pytest.mark.ray
def test_mlflow_status_of_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    endings = {
        "killed": (None, "RUNNING"),
        "plateau": (("plateau", "no growth"), "FINISHED"),
        "interrupted": (("interrupted", "by Ctrl-C"), "KILLED"),
        "failed": (("failed", "it broke"), "FAILED"),
    }
    config = TrackersConfig.model_validate({"mlflow": {}})
    for name, (finish, status) in endings.items():
        (tmp_path / name).mkdir()
        write_ledger(
            tmp_path / name,
            TRIALS[2:] if name == "failed" else TRIALS[:1],
            StoredSweep(finish=finish),
        )
        tracking.fill(config, LocalFolder(tmp_path / name))
        experiment = client.get_experiment_by_name("night-run").experiment_id

        def find_sweep(name: str = name, experiment: str = experiment) -> Any:
            (stored,) = client.search_runs([experiment], f"attributes.run_name = '{name}'")
            return stored

        assert find_sweep().info.status == status
        if finish is not None:
            assert find_sweep().data.tags["raysweep.reason"] in (
                finish[1],
                "none of its trials succeeded",
            )
        tracker_openers(config, Destination(LocalFolder(tmp_path / name), "night-run"))["mlflow"]()
        resumed = find_sweep()
        assert (resumed.info.status, resumed.data.tags["raysweep.status"]) == ("RUNNING", "running")


@pytest.mark.ray
def test_mlflow_status_of_a_paused_trial(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    client = MlflowClient(tracking_uri=f"sqlite:///{run.parent / 'mlflow.db'}")
    config = TrackersConfig.model_validate({"mlflow": {}})

    def find_trial() -> Any:
        experiment = client.get_experiment_by_name("night-run").experiment_id
        (trial,) = client.search_runs([experiment], "tags.`raysweep.trial` = '1'")
        return trial.info

    def fill_and_find_status() -> str:
        tracking.fill(config, LocalFolder(run))
        return str(find_trial().status)

    assert fill_and_find_status() == "KILLED", "the sweep is over"
    client.update_run(find_trial().run_id, status="RUNNING")
    assert fill_and_find_status() == "KILLED", "its driver had been killed"
    resume_paused_trial(run)
    assert fill_and_find_status() == "FINISHED"


@pytest.mark.ray
def test_unreachable_server_is_reported_on_one_line(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    done = raysweep_here(
        run.parent, "track", str(run), "--to", "mlflow", "--uri", "http://127.0.0.1:9"
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: mlflow: ")
    assert len(done.stderr.splitlines()) == 1


def wandb_records(path: Path) -> Iterator[Any]:
    """Yield the records of an offline run: the log format of LevelDB after a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, position, parts = path.read_bytes(), 7, b""
    while position + 7 <= len(content):
        if 32768 - position % 32768 < 7:  # the end of a block, too short for a record header
            position += 32768 - position % 32768
        _, length, kind = struct.unpack("<IHB", content[position : position + 7])
        parts += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a complete record, or its last part
            record = Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


@pytest.mark.ray
def test_wandb_offline_runs(run: Path) -> None:
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    fill_repeatedly(run, {"wandb": {}})
    curves: Curves = {}
    names = []
    for file in sorted((run.parent / "wandb").glob("offline-run-*/*.wandb")):
        records = list(wandb_records(file))
        (begun,) = [record.run for record in records if record.HasField("run")]
        names.append(begun.display_name)
        assert (begun.run_group, begun.project) == ("night-1", "night-run")
        for record in records:
            if record.HasField("history") and begun.display_name != "night-1 front":
                values = {
                    item.key or "/".join(item.nested_key): item.value_json
                    for item in record.history.item
                }
                for key, value in values.items():
                    if not key.startswith("_"):
                        add(
                            curves,
                            begun.display_name,
                            record.history.step.num,
                            key,
                            json.loads(value),
                        )
    assert sorted(names) == [
        "night-1 front",
        *(f"night-1 trial-000{number}" for number in range(3)),
    ]
    check_curves(curves, run)


def test_trackio_local_database(run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.delenv("TRACKIO_SPACE_ID", raising=False)
    pytest.importorskip("trackio", reason="the extra trackio is not installed")
    storage = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    fill_repeatedly(run, {"trackio": {}})
    rows = {name: storage.get_logs("night-run", name) for name in storage.get_runs("night-run")}
    assert rows.pop("night-1 front")
    (failed,) = rows.pop("night-1 trial-0002")
    assert (failed["step"], failed["status"], failed["reason"]) == (0, "failed", "diverged")
    curves: Curves = {}
    for name, steps in rows.items():
        for row in steps:
            for key, value in row.items():
                if key not in ("timestamp", "step"):
                    add(curves, name, row["step"], key, value)
    check_curves(curves, run)
