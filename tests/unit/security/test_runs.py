"""Runs with hostile ledgers, links, configurations, Tune files and warm starts."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import RenderableType

from raysweep.controller.resume import load_resumed
from raysweep.report import figures
from support.command_line import Done, raysweep_here
from support.hostile import Canary, check_rejected
from support.ledgers import (
    StoredSweep,
    StoredTrial,
    change_settings,
    read_lines,
    write_ledger,
    write_lines,
)
from support.pictures import blank_png
from support.sweep_files import MINIMAL

CONFIG = {"loss": "triplet", "learning_rate": 1e-5, "batch_size": 64, "freezing": "none"}
POINT = "points/trial-0000-step-001"
NESTED = "[" * 100_000
PREPARED = {
    **dict.fromkeys(("sentences", "tokens", "reference_embeddings"), "sentences-1"),
    "artifacts": "artifacts",
    "examples": {},
    "scores": {},
    "model": {"name": "demo"},
    "model_identity": "a",
    "reference": {"name": "demo"},
    "reference_identity": "a",
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that can be reported and resumed."""
    monkeypatch.setattr(figures, "front_figure", lambda _: blank_png())
    monkeypatch.setattr(figures, "progress_figure", lambda _: blank_png())
    folder = tmp_path / "run"
    (folder / POINT).mkdir(parents=True)
    (folder / "checkpoints").mkdir()
    trials = [StoredTrial(CONFIG, "completed", "", [(0.7, 0.4)])]
    write_ledger(folder, trials, StoredSweep(settings=MINIMAL.encode()))
    (folder / "prepared.json").write_text(json.dumps(PREPARED))
    return folder


def resume(run: Path) -> Done:
    return raysweep_here(run.parent, "run", "--resume", str(run))


def test_unchanged_run_is_reported_and_resumed(run: Path) -> None:
    done = raysweep_here(run.parent, "report", str(run))
    assert done.returncode == 0, done.stderr
    load_resumed(run)[1].ledger.close()


def change_event(event: str, /, **values: Any) -> Callable[[Path], None]:
    """Return a change of the first event of a kind to these values."""

    def change(ledger: Path) -> None:
        lines = read_lines(ledger.parent)
        next(line for line in lines if line["event"] == event).update(values)
        write_lines(ledger.parent, lines)

    return change


def append_line(line: bytes) -> Callable[[Path], None]:
    return lambda ledger: ledger.write_bytes(ledger.read_bytes() + line + b"\n")


def remove_second_line(ledger: Path) -> None:
    first, _, *others = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join([first, *others]))


def make_endless(ledger: Path) -> None:
    ledger.unlink()
    ledger.symlink_to("/dev/zero")


def make_pipe(ledger: Path) -> None:
    ledger.unlink()
    os.mkfifo(ledger)


LEDGERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "deep nesting": (append_line(NESTED.encode()), "line 7 is not an event"),
    "null bytes": (append_line(b'{"event": "\0"}'), "line 7 is not an event"),
    "invalid UTF-8": (append_line(b"\xff\xfe"), "line 7 is not an event"),
    "number with 5000 digits": (
        append_line(b'{"event": ' + b"1" * 5000 + b"}"),
        "line 7 is not an event",
    ),
    "unknown event": (change_event("rung", event="__import__"), "event is '__import__'"),
    "missing line": (remove_second_line, "removed or moved"),
    "trial is a path": (change_event("rung", trial="../../outside"), "trial is '../../outside'"),
    "step is a path": (change_event("rung", step="../../outside"), "step is '../../outside'"),
    "step is negative": (change_event("rung", step=-1), "step is -1"),
    "nested configuration": (
        change_event("trial", config={"loss": json.loads("[" * 400 + "]" * 400)}),
        "config.loss is a list",
    ),
    "endless file": (make_endless, "is not a regular file"),
    "pipe": (make_pipe, "is not a regular file"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("command", ["report", "record", "replay", "export", "warm start"])
@pytest.mark.parametrize("name", LEDGERS)
def test_tampered_ledgers_are_rejected(name: str, command: str, run: Path, canary: Canary) -> None:
    change, problem = LEDGERS[name]
    change(run / "ledger.jsonl")
    (run.parent / "sweep.yaml").write_text(MINIMAL)
    arguments = {
        "report": ["report", str(run)],
        "record": ["record", str(run), "recording.csv"],
        "replay": ["replay", str(run)],
        "export": ["export", str(run), "model"],
        "warm start": ["run", "sweep.yaml", "--storage.runs", "runs", "--warm-start", str(run)],
    }
    check_rejected(
        raysweep_here(run.parent, *arguments[command]), f"{run / 'ledger.jsonl'}: ", problem
    )
    assert not {path.name for path in run.parent.iterdir()} & {"recording.csv", "model", "runs"}


def test_pickled_ledgers_are_rejected(run: Path, canary: Canary) -> None:
    (run / "ledger.jsonl").write_bytes(canary.pickle + b"\n")
    for done in (raysweep_here(run.parent, "report", str(run)), resume(run)):
        check_rejected(done, f"{run / 'ledger.jsonl'}: line 1 is not an event")


def test_ledger_lines_without_a_number_are_ignored(run: Path) -> None:
    (run / "ledger").mkdir()
    (run / "ledger" / "9².jsonl").write_text("{}\n")
    (run / "ledger" / "²²²²²²²²².jsonl").write_text("{}\n")
    done = raysweep_here(run.parent, "report", str(run))
    assert done.returncode == 0, done.stderr


LINKS = {
    "points": "folder",
    "checkpoints": "folder",
    "report": "folder",
    POINT: "folder",
    "checkpoints/trial-0000": "folder",
    "checkpoints/trial-0000/000000003": "folder",
    f"{POINT}/test.npz": "file",
    "ledger.unfinished": "file",
    "ledger.jsonl": "file",
    "config.yaml": "file",
    "study.journal": "file",
    "run-2.log": "file",
}


@pytest.mark.parametrize("name", LINKS)
def test_resuming_through_a_link_is_rejected(name: str, run: Path, canary: Canary) -> None:
    """The target of the link would be removed, extended or overwritten."""
    path = run / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(canary.folder if LINKS[name] == "folder" else canary.folder / "precious.txt")
    check_rejected(resume(run), f"{path}: is a symbolic link")


def test_pipes_in_a_run_are_rejected(run: Path, canary: Canary) -> None:
    os.mkfifo(run / "warm_start.json")
    check_rejected(resume(run), "warm_start.json: is neither a file nor a folder")


def test_lock_link_of_optuna_is_accepted(run: Path) -> None:
    (run / "study.journal.lock").symlink_to(run / "study.journal")
    load_resumed(run)[1].ledger.close()


def test_reporting_through_a_link_is_rejected(run: Path, canary: Canary) -> None:
    (run / "report").symlink_to(canary.folder)
    check_rejected(
        raysweep_here(run.parent, "report", str(run)),
        f"{run / 'report'}: is a symbolic link",
        "--to",
    )
    done = raysweep_here(run.parent, "report", str(run), "--to", "elsewhere")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["run", "run/points"])
def test_starting_through_a_link_is_rejected(name: str, tmp_path: Path, canary: Canary) -> None:
    from raysweep.errors import InputError
    from raysweep.ray_tune.session import Session
    from raysweep.terminal import Display
    from support.sweep_files import read

    class Silent(Display):
        def line(self, text: str) -> None:
            raise AssertionError(text)

        def status(
            self, text: str, fraction: float = 0.0, view: RenderableType | None = None
        ) -> None:
            raise AssertionError(text)

    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).symlink_to(canary.folder)
    config, space = read(tmp_path, MINIMAL)
    unused: Any = None
    session = Session(config, space, unused, unused, Silent())
    with pytest.raises(InputError, match=f"{name}: is a symbolic link"):
        session.begin(place=str(tmp_path / "run"))


@pytest.mark.parametrize(
    "sampler", ["hostile:Evil", "hostile.optuna.samplers:Evil", "optuna.samplers.hostile:Evil"]
)
def test_sampler_named_only_by_the_run_is_not_imported(
    sampler: str, run: Path, canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run.parent / "hostile.py").write_text(
        canary.source + "from optuna.samplers import RandomSampler as Evil\n"
    )
    monkeypatch.syspath_prepend(run.parent)
    change_settings(run, f"{MINIMAL}sampler: {sampler}\n")
    check_rejected(resume(run), sampler, f"--sampler {sampler}")


def test_python_objects_in_the_configuration_are_rejected(run: Path, canary: Canary) -> None:
    change_settings(run, f"{MINIMAL}seed: {canary.yaml}\n")
    check_rejected(resume(run), f"{run / 'config.yaml'}: line 13: ", "constructor")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (NESTED, "raysweep prepare"),
        (json.dumps({**PREPARED, "tokens": "../../outside"}), "'../../outside'"),
        (json.dumps({**PREPARED, "examples": {"triplet": "/etc"}}), "'/etc'"),
        (json.dumps({**PREPARED, "sentences": ".."}), "'..'"),
        (json.dumps({**PREPARED, "sentences": {}}), "raysweep prepare"),
        ("PICKLE", "raysweep prepare"),
    ],
)
def test_invalid_artifact_names_are_rejected(
    content: str, problem: str, run: Path, canary: Canary
) -> None:
    raw = canary.pickle if content == "PICKLE" else content.encode()
    (run / "prepared.json").write_bytes(raw)
    check_rejected(resume(run), f"{run / 'prepared.json'}: ", problem)


@pytest.mark.parametrize(
    "content", [NESTED.encode(), b"\xff\xfe", b'{"observations": "../x"}', "PICKLE"]
)
def test_tampered_warm_starts_are_rejected(content: bytes | str, run: Path, canary: Canary) -> None:
    from raysweep.controller import warm_start
    from raysweep.errors import InputError
    from raysweep.storage.folder import LocalFolder

    (run / "warm_start.json").write_bytes(canary.pickle if isinstance(content, str) else content)
    with pytest.raises(InputError, match="warm_start.json: ") as caught:
        warm_start.read(LocalFolder(run))
    assert "\n" not in str(caught.value)


TUNE_FILES = (
    *(
        "tuner.pkl",
        "trainable.pkl",
        "searcher-state-1.pkl",
        "search_gen_state-1.json",
        "experiment_state-1.json",
    ),
    *("trial-0/error.pkl", "trial-0/params.pkl", "trial-0/checkpoint_000000/data.pkl"),
)


@pytest.mark.parametrize("folder", ["tune", "."])
def test_tune_files_are_not_read(folder: str, run: Path, canary: Canary) -> None:
    for name in TUNE_FILES:
        path = run / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(canary.pickle)
    for command in (["report", str(run)], ["record", str(run), "recording.csv"]):
        done = raysweep_here(run.parent, *command)
        assert done.returncode == 0, done.stderr
    load_resumed(run)[1].ledger.close()
