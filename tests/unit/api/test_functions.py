"""The public API: its names, and the errors for invalid input."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import raysweep
from raysweep.api.progress import CallbackDisplay
from raysweep.control.request import Answer, read_request
from raysweep.control.request_queue import RequestQueue
from raysweep.results.ledger import Ledger
from raysweep.storage.folder import LocalFolder
from support.command_line import raysweep_here
from support.ledgers import StoredSweep, random_trials, write_ledger


def test_public_names_exist_and_are_documented() -> None:
    for name in raysweep.__all__:
        value = getattr(raysweep, name)
        assert name in dir(raysweep)
        assert name == "__version__" or value.__doc__, name


def test_unknown_names_raise_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'raysweep' has no attribute 'sweep_load'"):
        raysweep.sweep_load  # noqa: B018


def test_import_is_light() -> None:
    code = "import sys; import raysweep; print([m for m in ('numpy', 'pandas', 'pydantic', 'optuna', 'torch', 'ray') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_shipped_spaces_load_by_name_with_overrides() -> None:
    overrides = {
        "budget.trials": 7,
        "objective.polarity_weight": 0.25,
        "space.freezing": "emb",
        "data.train": Path("a.csv"),
    }
    sweep = raysweep.load_sweep("smoke", overrides)
    assert (sweep.config.budget.trials, sweep.config.objective.polarity_weight) == (7, 0.25)
    assert sweep.space.values("freezing") == ["emb"]
    assert sweep.config.data.train == str(Path("a.csv").absolute())


def test_overrides_may_be_yaml_text_or_values() -> None:
    as_text = raysweep.load_sweep(
        "smoke", {"space.learning_rate": "{low: 1e-6, high: 1e-4, log: true}"}
    )
    as_value = raysweep.load_sweep(
        "smoke", [("space.learning_rate", {"low": 1e-6, "high": 1e-4, "log": True})]
    )
    assert as_text.space == as_value.space


@pytest.mark.parametrize(
    "name", ["/data/x #1.csv", "/data/a: b.csv", "/data/2024", "/data/\U0001f600.csv"]
)
def test_paths_are_used_verbatim(name: str) -> None:
    assert raysweep.load_sweep("smoke", {"data.train": Path(name)}).config.data.train == name
    assert raysweep.load_sweep(
        "smoke", {"data.train": [name, "/data/y.csv"]}
    ).config.data.train == [
        name,
        "/data/y.csv",
    ]


def test_preparing_in_process_reports_warnings(tmp_path: Path, tiny_encoder: str) -> None:
    rows = [f"sentence {number},{number % 2}" for number in range(40)]
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows, "torn,0", "torn,1"]))
    overrides = {
        "data.train": tmp_path / "train.csv",
        "model": tiny_encoder,
        "storage.runs": tmp_path,
        "evaluation.k": 2,
    }
    sweep = raysweep.load_sweep("smoke", overrides | {"space.freezing": "none"})
    messages: list[raysweep.Progress] = []
    raysweep.prepare_sweep(sweep, in_process=True, on_progress=messages.append)
    warnings = [progress.text for progress in messages if progress.kind == "warning"]
    assert any(
        "1 text occurs with different labels" in text and "dropped 2 rows" in text
        for text in warnings
    )


@pytest.mark.parametrize(
    ("space", "overrides", "message"),
    [
        (
            "smok",
            {},
            r"smok: no such file or shipped space \(did you mean smoke\?\); shipped: .*smoke",
        ),
        ("smoke", {"budget.trails": 4}, r"--budget.trails: unknown key \(did you mean trials\?\)"),
        ("smoke", {"budget.trials": -1}, r"--budget.trials is -1; allowed: "),
        (
            "smoke",
            {"budget.trials": object()},
            r"budget.trials is .* of type object; allowed: a value that YAML can represent",
        ),
        (
            "smoke",
            {"sampler": "nowhere:Sampler"},
            r"--sampler: 'nowhere:Sampler' cannot be imported",
        ),
    ],
)
def test_invalid_sweeps_are_rejected(
    space: str, overrides: dict[str, object], message: str
) -> None:
    with pytest.raises(raysweep.InputError, match=message):
        raysweep.load_sweep(space, overrides)


def test_trial_configurations_have_the_defaults_of_their_loss() -> None:
    assert (
        raysweep.trial_config(loss="multiple_negatives", learning_rate=1e-5).loss_parameters[
            "scale"
        ]
        == 20
    )
    with pytest.raises(raysweep.InputError, match=r"margn: unknown key \(did you mean margin"):
        raysweep.trial_config(loss="triplet", learning_rate=1e-5, margn=0.1)


def test_missing_runs_and_prepared_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(raysweep.InputError, match="not a run folder"):
        raysweep.load_run(tmp_path)
    with pytest.raises(raysweep.InputError, match="not a run folder"):
        raysweep.export_point(tmp_path, tmp_path / "model")
    with pytest.raises(raysweep.InputError, match="not a file written by raysweep prepare"):
        raysweep.open_prepared(tmp_path / "missing.json")
    for place in ("", "ftp://host/prepared.json", "s3://ID:sEcret@bucket/prepared.json"):
        with pytest.raises(raysweep.InputError) as caught:
            raysweep.open_prepared(place)
        assert "sEcret" not in str(caught.value)
    with pytest.raises(raysweep.InputError, match="cannot be resumed"):
        raysweep.resume_run(tmp_path)


def test_messages_fit_on_a_line(tmp_path: Path) -> None:
    assert (
        repr(raysweep.Progress("event", "trial 3: started"))
        == "Progress('event', 'trial 3: started')"
    )
    long = raysweep.Progress("warning", "a row\n" * 50)
    assert len(repr(long)) < 110 and "\n" not in repr(long)
    assert str(long) == f"warning: {long.text}"


def test_callbacks_receive_events_only() -> None:
    messages: list[raysweep.Progress] = []
    display = CallbackDisplay(messages.append)
    with display.stage("prepare: tokens") as advance:
        for done in range(100):
            advance(done, 100, "rows")
    display.status("9 of 12 trials", 0.75)
    display.line("trial 0: started")
    display.warn("a label is rare")
    assert [str(message) for message in messages] == [
        "trial 0: started",
        "warning: a label is rare",
    ]
    CallbackDisplay(None).line("nobody listens")


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Path]:
    """A run with a driver that accepts requests, except those to pause, and ignores those to resume."""
    write_ledger(tmp_path, random_trials(2), StoredSweep(finish=None))
    ledger = Ledger(tmp_path)
    ledger.open()
    queue = RequestQueue(LocalFolder(tmp_path))
    stop = threading.Event()

    def serve() -> None:
        while not stop.wait(0.02):
            for queued in queue.pending():
                request = read_request(queued.content)
                if request.action != "resume":
                    text = f"{request.action} {request.workers} {request.trial} {request.config}"
                    queue.answer(
                        queued.identity, Answer(accepted=request.action != "pause", text=text)
                    )

    thread = threading.Thread(target=serve)
    thread.start()
    yield tmp_path
    stop.set()
    thread.join()
    ledger.close()


def test_control_returns_what_the_command_prints(driven: Path) -> None:
    for action, value, options in (
        ("workers", 2, ("--workers", "2")),
        ("stop-trial", 0, ("--stop-trial", "0")),
        ("try", {"loss": "triplet", "margin": 0.1}, ("--try", "{loss: triplet, margin: 0.1}")),
    ):
        answer = raysweep.control_run(driven, action, value)
        printed = raysweep_here(driven, "control", ".", *options)
        assert (printed.returncode, printed.stdout) == (0, f"{answer}\n")
        assert answer.startswith(action)
    assert raysweep.control_run(raysweep.load_run(driven), "workers", 1) == "workers 1 None None"


def test_rejected_and_unanswered_requests_raise(driven: Path) -> None:
    with pytest.raises(raysweep.InputError, match="^pause None None None$"):
        raysweep.control_run(driven, "pause")
    assert (
        raysweep_here(driven, "control", ".", "--pause").stderr == "error: pause None None None\n"
    )
    with pytest.raises(
        TimeoutError, match="no answer within 0.1 s; the request stays in the queue"
    ):
        raysweep.control_run(driven, "resume", wait=0.1)
    unanswered = raysweep_here(driven, "control", ".", "--resume", "--wait", "0.1")
    assert unanswered.returncode == 1 and "no answer within 0.1 s" in unanswered.stderr


@pytest.mark.parametrize(
    ("action", "value", "message"),
    [
        ("stop", None, "action is 'stop'; allowed: pause, resume, workers, stop-trial, try"),
        ("pause", 3, "pause takes no value; given: 3"),
        ("workers", 0, "workers is 0; allowed: greater than or equal to 1"),
        ("workers", None, "workers needs a number; given: None"),
        ("stop-trial", "7", "stop-trial is '7'; allowed: "),
        ("try", None, "--try is None; allowed: a mapping"),
        ("try", {"margin": float("nan")}, "--try: margin is nan; allowed: "),
    ],
)
def test_invalid_actions_are_rejected(
    tmp_path: Path, action: str, value: Any, message: str
) -> None:
    with pytest.raises(raysweep.InputError, match=message):
        raysweep.control_run(tmp_path, action, value)


def test_control_without_a_driver_is_rejected(tmp_path: Path) -> None:
    write_ledger(tmp_path, random_trials(2))
    with pytest.raises(raysweep.InputError, match="no driver is running: the sweep has completed"):
        raysweep.control_run(tmp_path, "pause")


def write_labeled(folder: Path) -> None:
    for name, step in (("train", 1), ("test", 7)):
        rows = [f"sentence {number},{number % 2}" for number in range(0, 60, step)]
        (folder / f"{name}.csv").write_text("\n".join(["text,label", *rows]))


def test_evaluate_returns_what_the_command_prints(tmp_path: Path, tiny_encoder: str) -> None:
    write_labeled(tmp_path)
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    warnings: list[raysweep.Progress] = []
    frame = raysweep.evaluate_model(
        tiny_encoder,
        train,
        test,
        k=[2, 4],
        rank_weights=["uniform", "linear"],
        num_pool=99,
        prompt={"query": "find: "},
        on_progress=warnings.append,
    )
    sources = ("--model", tiny_encoder, "--train", str(train), "--test", str(test))
    options = (
        "--k",
        "2,4",
        "--rank-weights",
        "uniform,linear",
        "--num-pool",
        "99",
        "--prompt-query",
        "find: ",
    )
    printed = raysweep_here(tmp_path, "evaluate", *sources, *options, "--format", "json")
    assert frame.to_dict("records") == json.loads(printed.stdout)
    assert [str(message) for message in warnings] == [
        f"warning: --num-pool is 99; using all 60 rows of {train}"
    ]
    plain = raysweep.evaluate_model(tiny_encoder, train, test, k=3, num_pool=20)
    again = raysweep.evaluate_model(
        tiny_encoder, train, test, k=3, num_pool=20, reference=tiny_encoder
    )
    pd.testing.assert_frame_equal(plain, again)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 99}, "k is 99; allowed: 1 to "),
        ({"rank_weights": "square"}, "rank_weights is 'square'; allowed: uniform, linear"),
        ({"precision": "fp16"}, "precision is 'fp16'; allowed: "),
        ({"prompt": {"title": "x"}}, "prompt is .*; allowed: a string, or a mapping"),
        ({"model": ""}, "model is empty"),
        ({"reference": ""}, "reference is empty"),
        ({"text_column": "words"}, "words"),
        ({"test": "missing.csv"}, "missing.csv"),
    ],
)
def test_invalid_evaluations_are_rejected(
    tmp_path: Path, tiny_encoder: str, arguments: dict[str, Any], message: str
) -> None:
    write_labeled(tmp_path)
    files = {
        "model": tiny_encoder,
        "train": tmp_path / "train.csv",
        "test": tmp_path / "test.csv",
        "k": 2,
    }
    with pytest.raises(raysweep.InputError, match=message):
        raysweep.evaluate_model(**files | arguments)
