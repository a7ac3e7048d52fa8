"""Resumption of a sweep: allowed changes of the space, and checks of the run folder."""

import hashlib
import shutil
import threading
from pathlib import Path

import pytest

from raysweep.config.load import LoadedSweep
from raysweep.config.sides import Sides
from raysweep.config.space import Choices, Fixed, Parameter, Range, Space
from raysweep.config.sweep import BaselinesConfig
from raysweep.controller.resume import Resumed, RunState, check_space, load_resumed, read_state
from raysweep.data.artifacts import Artifact
from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.metrics.scores import RELATION_GOALS
from raysweep.results.events import PointsScored, SessionFinished, SessionStarted
from raysweep.results.ledger import Ledger, load_events
from raysweep.storage.folder import open_folder
from support.ledgers import (
    INFO,
    StoredSweep,
    StoredTrial,
    random_trials,
    read_lines,
    start_session,
    write_ledger,
    write_lines,
)
from support.s3_server import S3Server
from support.sweep_files import MINIMAL

NUMBERS = Choices({0.1: {}, 0.5: {}})
RANGE = Range(0.1, 1.0, True, False)
LOSSES = Choices({"a": {"margin": RANGE}, "b": {}})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (NUMBERS, Choices({0.1: {}, 0.5: {}, 0.9: {}})),
        (NUMBERS, RANGE),
        (RANGE, Range(0.01, 2.0, False, False)),
        (RANGE, Range(0.2, 0.9, True, False)),
        (LOSSES, Choices({**LOSSES.options, "a": {"margin": Range(0.2, 2.0, True, False)}})),
        (Fixed(0.1), NUMBERS),
        (Fixed(0.1), RANGE),
        (LOSSES, Choices({**LOSSES.options, "c": {}})),
    ],
)
def test_larger_space_and_other_ranges_are_accepted(before: Parameter, after: Parameter) -> None:
    check_space(Space({"name": before}), Space({"name": after, "other": Fixed(1)}), Path("run"))


@pytest.mark.parametrize(
    ("before", "after", "missing"),
    [
        (NUMBERS, None, "name is missing"),
        (NUMBERS, Choices({0.1: {}}), "name lacks 0.5"),
        (NUMBERS, Range(0.2, 1.0, True, False), "name lacks 0.1"),
        (NUMBERS, Fixed(0.1), "name was a choice"),
        (RANGE, Range(1, 2, True, True), "name was 0.1 to 1 and is 1 to 2"),
        (RANGE, NUMBERS, "name was a range"),
        (Fixed(0.2), NUMBERS, "name lacks 0.2"),
        (Fixed("x"), RANGE, "name lacks x"),
        (LOSSES, Choices({"a": {}}), "name=a.margin is missing; name lacks b"),
    ],
)
def test_missing_part_of_the_space_is_named(
    before: Parameter, after: Parameter | None, missing: str
) -> None:
    parameters = {} if after is None else {"name": after}
    with pytest.raises(InputError, match=f"space.*: {missing}$"):
        check_space(Space({"name": before}), Space(parameters), "run")


def make_run(folder: Path, *configs: str) -> None:
    """Write a run with one session per configuration; its folder has the last one."""
    ledger = Ledger(folder)
    for config in configs:
        ledger.append(start_session(folder, settings=config.encode()))
        ledger.append(PointsScored(points=()))
    ledger.close()
    (folder / "prepared.json").touch()


def test_changed_settings_file_is_rejected(tmp_path: Path) -> None:
    make_run(tmp_path, "seed: 0", "seed: 1")
    path = tmp_path / "config.yaml"
    # a crash between a session's first event and its file leaves the one before
    for content in (
        "seed: 1",
        "seed: 0",
    ):
        path.write_text(content)
        Resumed(tmp_path).ledger.close()
    for content in ("seed: 2", "seed: 1\n", ""):
        path.write_text(content)
        with pytest.raises(
            InputError, match=r"config.yaml: differs from the settings that the run was started"
        ):
            Resumed(tmp_path)


@pytest.fixture
def searched_run(tmp_path: Path) -> Path:
    """A run whose trial 0 was evaluated at rungs 1 to 3."""
    scores = [(0.7, 0.46), (0.75, 0.45), (0.8, 0.44)]
    write_ledger(
        tmp_path,
        [StoredTrial(random_trials(1)[0].config, "paused", "", scores)],
        StoredSweep(settings=b"seed: 0"),
    )
    (tmp_path / "prepared.json").touch()
    return tmp_path


def keep_rungs(run: Path, num_rungs: int) -> None:
    """Remove trial 0's rungs after ``num_rungs`` and all later lines from the ledger."""
    lines = read_lines(run)
    end = next(
        index
        for index, line in enumerate(lines)
        if line["event"] == "rung" and line["step"] > num_rungs
    )
    write_lines(run, lines[:end])


@pytest.mark.parametrize(
    "folder", ["checkpoints/trial-0000/000006144", "points/trial-0000-step-003"]
)
def test_ledger_may_be_one_rung_behind_a_stored_rung(searched_run: Path, folder: str) -> None:
    stored = searched_run / folder
    stored.mkdir(parents=True)
    (stored / "values.json").touch()
    ledger = searched_run / "ledger.jsonl"
    for num_rungs in (2, 1):
        keep_rungs(searched_run, num_rungs)
        content = ledger.read_bytes()
        if num_rungs == 2:
            Resumed(searched_run).ledger.close()
            continue
        with pytest.raises(
            InputError, match=rf"ledger.jsonl: trial 0 .*rung 1,.*{folder[:22]}.*rung 3;.*restore"
        ):
            Resumed(searched_run)
        assert ledger.read_bytes() == content
    shutil.rmtree(stored)
    Resumed(searched_run).ledger.close()  # also checks that the rejected run was unlocked


def test_checkpoint_within_the_next_rung_is_accepted(searched_run: Path) -> None:
    """The trial finished rung 2 (4,096 examples) and was interrupted 1 example before the end of rung 3."""
    (searched_run / "checkpoints" / "trial-0000" / "000006143").mkdir(parents=True)
    (searched_run / "checkpoints" / "trial-0000" / "000006143" / "values.json").touch()
    keep_rungs(searched_run, 1)
    Resumed(searched_run).ledger.close()


@pytest.mark.parametrize(
    "folder", ["checkpoints/trial-0001/000000100", "points/trial-0001-step-001"]
)
def test_ledger_without_the_trial_of_a_stored_rung_is_rejected(
    searched_run: Path, folder: str
) -> None:
    (searched_run / folder).mkdir(parents=True)
    (searched_run / folder / "values.json").touch()
    with pytest.raises(InputError, match=rf"ledger.jsonl: trial 1 is missing,.*{folder[:22]}"):
        Resumed(searched_run)


def test_run_is_read_again_after_waiting_for_its_lease(server: S3Server, tmp_path: Path) -> None:
    make_run(tmp_path, f"{MINIMAL}\nbudget: {{trials: 10}}\n")
    place = server.uri("changed-meanwhile")
    run = open_folder(place)
    for name in ("config.yaml", "prepared.json"):
        run.put(name, (tmp_path / name).read_bytes())
    holder = Ledger(run)
    for event in load_events(tmp_path):
        holder.append(event)
    waiting = threading.Event()
    resumed: list[tuple[LoadedSweep, Resumed]] = []

    def resume() -> None:
        resumed.append(load_resumed(open_folder(place), report=lambda text: waiting.set()))

    resuming = threading.Thread(target=resume, daemon=True)
    resuming.start()
    assert waiting.wait(60)
    changed = f"{MINIMAL}\nbudget: {{trials: 20}}\n".encode()
    holder.append(SessionStarted(info=INFO, config_digest=hashlib.sha256(changed).hexdigest()))
    run.put("config.yaml", changed)
    run.put("prepared.json", b"{}")
    holder.close()
    resuming.join(60)
    [(loaded, state)] = resumed
    state.ledger.close()
    assert loaded.config.budget.trials == 20
    assert (state.folder / "prepared.json").read_bytes() == b"{}"


def prepared_in(artifacts: Path, data: str = "sentences-1") -> Prepared:
    sentences, encoded = Artifact(str(artifacts), data), Artifact(str(artifacts), "encoded-1")
    return Prepared(
        {},
        "",
        sentences,
        Sides.same(encoded),
        Sides.same(encoded),
        {},
        reference={},
        reference_identity="",
    )


def test_moved_run_uses_artifacts_next_to_it(tmp_path: Path) -> None:
    run = tmp_path / "before" / "runs" / "one"
    run.mkdir(parents=True)
    make_run(run, f"{MINIMAL}\nstorage: {{runs: {run.parent}}}\n")
    prepared_in(run.parent / "artifacts").save(run / "prepared.json")
    (run.parent / "artifacts" / "sentences-1").mkdir(parents=True)
    shutil.move(tmp_path / "before", tmp_path / "after: #1 \N{SNOWFLAKE}")
    moved = tmp_path / "after: #1 \N{SNOWFLAKE}" / "runs"
    loaded, resumed = load_resumed(moved / "one")
    resumed.ledger.close()
    assert loaded.config.storage.artifacts_location == str(moved / "artifacts")
    resumed.check_data(resumed.prepared, prepared_in(moved / "artifacts"))
    with pytest.raises(
        InputError,
        match=r"the data \(data.train, data.dev or data.test\) have changed since this sweep ran",
    ):
        resumed.check_data(resumed.prepared, prepared_in(moved / "artifacts", data="sentences-2"))
    (tmp_path / "latest").symlink_to(moved / "one")
    loaded, resumed = load_resumed(tmp_path / "latest")
    resumed.ledger.close()
    assert loaded.config.storage.artifacts_location == str(moved / "artifacts")
    loaded, resumed = load_resumed(
        moved / "one", None, [("storage.artifacts", str(tmp_path / "elsewhere"))]
    )
    resumed.ledger.close()
    assert loaded.config.storage.artifacts_location == str(tmp_path / "elsewhere")


def test_copied_run_reads_given_artifacts_instead_of_the_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nowhere")  # of which any request is refused
    make_run(tmp_path, f"{MINIMAL}\nstorage: {{runs: s3://bucket/runs}}\n")
    loaded, resumed = load_resumed(tmp_path, None, [("storage.artifacts", str(tmp_path / "here"))])
    resumed.ledger.close()
    assert loaded.config.storage.artifacts_location == str(tmp_path / "here")
    assert loaded.config.storage.runs == str(tmp_path.parent)


def test_moved_run_uses_artifacts_at_the_old_place(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "one"
    run.mkdir(parents=True)
    make_run(run, f"{MINIMAL}\nstorage: {{runs: {run.parent}}}\n")
    (run.parent / "artifacts" / "sentences-1").mkdir(parents=True)
    shutil.move(run, tmp_path / "alone")
    loaded, resumed = load_resumed(tmp_path / "alone")
    resumed.ledger.close()
    assert loaded.config.storage.artifacts_location == str(run.parent / "artifacts")


def test_baselines_may_be_added_on_resume(tmp_path: Path) -> None:
    assert "baselines" not in MINIMAL
    make_run(tmp_path, MINIMAL)
    before, resumed = load_resumed(tmp_path)
    resumed.ledger.close()
    assert before.config.baselines == BaselinesConfig()
    changes = [("baselines.published", "sst2"), ("baselines.probe", "[2.0]")]
    after, resumed = load_resumed(tmp_path, None, changes)
    resumed.ledger.close()
    assert after.config.baselines == BaselinesConfig(probe=[2.0], published="sst2")


def test_the_kind_of_data_is_kept_if_the_file_leaves_it_to_the_columns(tmp_path: Path) -> None:
    unknown = MINIMAL.replace("  train: train.csv", "  {train: a.jsonl, dev: b.jsonl}")
    goals = "objective: {polarity: ranking, similarity: agreement}\n"
    make_run(tmp_path, unknown.replace("b.jsonl", "b.jsonl, kind: retrieval") + goals)
    file = tmp_path / "sweep.yaml"
    file.write_text(unknown)
    loaded, resumed = load_resumed(tmp_path, file, [("storage.runs", str(tmp_path.parent))])
    resumed.ledger.close()
    assert (
        loaded.config.data.kind == "retrieval" and loaded.config.objective.goals == RELATION_GOALS
    )


def test_rejected_change_releases_the_run(tmp_path: Path) -> None:
    make_run(tmp_path, MINIMAL)
    with pytest.raises(
        InputError, match="cannot be resumed with a different configuration"
    ) as caught:
        load_resumed(tmp_path, None, [("seed", "5")])
    load_resumed(tmp_path)[1].ledger.close()
    assert caught.value  # which would keep the ledger, had it not been closed


@pytest.mark.parametrize(
    ("key", "value", "default"),
    [
        ("matryoshka", "'192'", "null"),
        ("optimizer", "sgd", "adamw"),
        ("weight_decay", "0.1", "0.01"),
    ],
)
def test_new_parameter_includes_the_default_of_earlier_trials(
    key: str, value: str, default: str, tmp_path: Path
) -> None:
    make_run(tmp_path, MINIMAL)
    with pytest.raises(
        InputError,
        match=f"the new space must include the default of each added parameter: {key} is",
    ):
        load_resumed(tmp_path, None, [(f"space.{key}", value)])
    _, resumed = load_resumed(
        tmp_path, None, [(f"space.{key}", f"{{choices: [{value}, {default}]}}")]
    )
    resumed.ledger.close()


@pytest.mark.parametrize("name", ["points", "checkpoints", "report", "points/trial-0000-rung-01"])
def test_run_with_symbolic_links_is_rejected(tmp_path: Path, name: str) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    run.mkdir()
    outside.mkdir()
    make_run(run, "seed: 0")
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).symlink_to(outside)
    with pytest.raises(InputError, match=f"{name}: is a symbolic link"):
        Resumed(run)


def test_sampler_import_path_of_the_run_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = tmp_path / "canary"
    (tmp_path / "hostile.py").write_text(
        f"open({str(canary)!r}, 'w')\nfrom optuna.samplers import RandomSampler\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    config = f"{MINIMAL}\nsampler: hostile:RandomSampler\n"
    make_run(run, config)
    with pytest.raises(InputError, match=r"sampler is 'hostile:RandomSampler'.* --sampler hostile"):
        load_resumed(run)
    assert not canary.exists()
    _, resumed = load_resumed(run, None, [("sampler", "hostile:RandomSampler")])
    resumed.ledger.close()
    assert canary.exists()
    (tmp_path / "optunas").mkdir()
    make_run(tmp_path / "optunas", f"{MINIMAL}\nsampler: optuna.samplers:RandomSampler\n")
    _, resumed = load_resumed(tmp_path / "optunas")
    resumed.ledger.close()


def test_run_can_be_resumed_once_it_has_begun(tmp_path: Path) -> None:
    assert read_state(str(tmp_path / "nothing")) == RunState(has_begun=False)
    run = tmp_path / "run"
    run.mkdir()
    ledger = Ledger(run)
    assert read_state(str(run)) == RunState(has_begun=False)
    ledger.append(start_session(run))
    assert read_state(str(run)) == RunState(has_begun=False)
    ledger.append(PointsScored(points=()))
    assert read_state(str(run)) == RunState(has_begun=True)
    ledger.close()


def test_only_the_last_session_determines_a_final_failure(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    for event, failure in (
        (start_session(tmp_path), None),
        (PointsScored(points=()), None),
        (SessionFinished(status="failed", reason="the bucket is missing", seconds=1.0), None),
        (
            SessionFinished(
                status="failed", reason="3 of 3 trials failed", seconds=1.0, is_final=True
            ),
            "3 of 3 trials failed",
        ),
        (start_session(tmp_path), None),
        (SessionFinished(status="interrupted", reason="Ctrl-C", seconds=2.0), None),
    ):
        ledger.append(event)
        assert read_state(str(tmp_path)).failure == failure
    ledger.close()
