"""Files of layouts in a folder, and the command."""

from pathlib import Path

import pandas as pd
import pytest

from raysweep.errors import InputError
from raysweep.paper import figures
from raysweep.paper.write import write_by_k, write_layouts
from raysweep.storage.folder import LocalFolder
from support.command_line import raysweep_here
from support.ledgers import write_run_with_markup
from support.tables import check_latex, grid, write_run

SUFFIXES = {".md", ".tex", ".csv"}
BY_MARGIN = {
    f"by_margin_{score}{suffix}" for score in ("polarity", "similarity") for suffix in SUFFIXES
}
SCORES = pd.DataFrame(
    {
        "model": "m",
        "rank_weights": "uniform",
        "k": [1, 2, 4],
        "polarity": [61.0, 62.0, 64.0],
        "similarity": 48.0,
    }
).assign(polarity_std=float("nan"), similarity_std=float("nan"), accuracy=float("nan"))


def files(name: str) -> set[str]:
    return {f"{name}{suffix}" for suffix in (*SUFFIXES, ".png")}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture(autouse=True)
def quick_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip drawing, which is slow and has its own tests."""
    for name in ("draw_by_k", "draw_spreads", "draw_curves"):
        monkeypatch.setattr(figures, name, lambda *values: repr(values).encode())


@pytest.fixture
def run(tmp_path: Path) -> LocalFolder:
    return LocalFolder(write_run(tmp_path / "run", grid()))


def test_possible_layouts_are_written_and_others_have_a_reason(
    run: LocalFolder, tmp_path: Path
) -> None:
    written = write_layouts([run], tmp_path / "new" / "to")
    assert names(tmp_path / "new" / "to") == BY_MARGIN | files("by_rung")
    assert list(written.files) == ["by_margin_polarity", "by_margin_similarity", "by_rung"]
    assert list(written.left_out) == ["by_examples"]
    assert "examples_per_rung 2,048" in written.left_out["by_examples"]


def test_earlier_layouts_are_replaced_and_other_files_stay(
    run: LocalFolder, tmp_path: Path
) -> None:
    to = tmp_path / "to"
    to.mkdir()
    for name in ("by_rung.md", "by_examples.png", "by_k.csv", "mine.txt"):
        (to / name).write_text("old")
    write_layouts([run], to)
    assert (to / "by_rung.md").read_text() != "old"
    assert not (to / "by_examples.png").exists(), "from an earlier call"
    assert (to / "mine.txt").read_text() == (to / "by_k.csv").read_text() == "old", (
        "evaluate may have written it"
    )


def test_layouts_by_k_are_combined(tmp_path: Path) -> None:
    write_by_k(SCORES, "", tmp_path / "m")
    others = SCORES.assign(
        model="n", similarity=40.0, polarity_std=8.0, similarity_std=9.0, accuracy=70.0
    )
    write_by_k(others, "", tmp_path / "n")
    assert names(tmp_path / "m") == files("by_k")
    written = write_layouts(
        [tmp_path / "m" / "by_k.csv", tmp_path / "n" / "by_k.csv"], tmp_path / "to"
    )
    assert list(written.files) == ["by_k"] and not written.left_out
    write_by_k(pd.concat([SCORES, others]), "", tmp_path / "both")
    assert (tmp_path / "to" / "by_k.csv").read_bytes() == (
        tmp_path / "both" / "by_k.csv"
    ).read_bytes()


def test_nothing_is_written_if_a_source_is_invalid(run: LocalFolder, tmp_path: Path) -> None:
    write_by_k(SCORES, "", tmp_path / "m")
    to = tmp_path / "to"
    for sources, where, message in [
        ([run, tmp_path / "typo"], {}, "typo: no such file"),
        ([run], {"margin": "7"}, "margin '7'; allowed: 0.1, 0.5, 1"),
        ([run, run], {}, "run .*twice"),
    ]:
        with pytest.raises(InputError, match=message):
            write_layouts(sources, to, where)
    with pytest.raises(
        InputError,
        match="^no layout .*scores on test; .*examples_per_rung",
    ):
        write_layouts([run], to, split="test")
    assert not to.exists()
    with pytest.raises(InputError, match="by_k.csv: .*replaced"):
        write_layouts([tmp_path / "m" / "by_k.csv"], tmp_path / "m")
    assert names(tmp_path / "m") == files("by_k")


def test_a_figure_that_fails_leaves_the_folder_as_it_was(
    run: LocalFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError("no space")

    monkeypatch.setattr(figures, "draw_curves", fail)
    with pytest.raises(OSError, match="no space"):
        write_layouts([run], tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_folders_that_are_files_are_rejected(run: LocalFolder, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for to in (tmp_path / "file", tmp_path / "file" / "to"):
        with pytest.raises(InputError, match=f"{to}: cannot be written; .*file is a file"):
            write_layouts([run], to)


def test_markup_in_user_text_is_escaped(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    write_run_with_markup(folder)
    write_layouts([LocalFolder(folder)], tmp_path / "to")
    check_latex((tmp_path / "to" / "by_margin_polarity.tex").read_text())
    assert "<script>" not in (tmp_path / "to" / "by_margin_polarity.md").read_text()


def test_the_command_reports_written_and_omitted_layouts(run: LocalFolder, tmp_path: Path) -> None:
    done = raysweep_here(tmp_path, "paper", "run", "--to", "to", "--where", "loss=triplet")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "by_margin_polarity: .md, .tex, .csv",
        "by_margin_similarity: .md, .tex, .csv",
        "by_rung: .md, .tex, .csv, .png",
        "note: by_examples is left out: every configuration has examples_per_rung 2,048; the layout compares several values",
        "layouts: to",
    ]
    for arguments, message in [
        (["run", "--to", "to", "--split", "train"], "--split is 'train'; allowed: dev, test"),
        (["nowhere", "--to", "to"], "nowhere: no such file"),
        (["to", "--to", "to"], f"{tmp_path / 'to'}: not a run folder"),
        (["run", "--to", "s3://bucket/to"], "--to: is a URI; allowed: a local path"),
        (["run", "--to", "to", "--where", "loss"], "--where is 'loss'; allowed: COLUMN=VALUE"),
    ]:
        failed = raysweep_here(tmp_path, "paper", *arguments)
        assert failed.returncode == 2
        assert failed.stderr.startswith(f"error: {message}") and failed.stderr.count("\n") == 1
