"""The command ``paper`` on the published scores, compared with pandas and the paper's tables."""

from pathlib import Path

import pandas as pd
import pytest

from support.command_line import raysweep_here
from support.paths import DATA
from support.tables import latex_rows, markdown_rows

NAMES = {
    "TripletLoss": "triplet",
    "ContrastiveLoss": "contrastive",
    "OnlineContrastiveLoss": "online_contrastive",
    "MultipleNegativesRankingLoss": "multiple_negatives",
}
MODELS = ["minilm-6", "e5-small", "gte-small", "gte-base"]

# Table 4 as printed: N, then mean, standard deviation, minimum and maximum of P and of S over 68 configurations.
TABLE_4 = """
50 & 75.7 & 7.5 & 63.0 & 81.5 & 75.1 & 16.6 & 46.6 & 85.5
500 & 75.7 & 7.5 & 63.0 & 81.5 & 75.1 & 16.6 & 46.6 & 85.5
2000 & 75.7 & 7.5 & 62.9 & 81.7 & 75.1 & 16.6 & 46.6 & 85.5
5000 & 76.3 & 7.7 & 63.1 & 83.1 & 75.1 & 16.6 & 46.5 & 85.5
10000 & 78.0 & 8.3 & 63.2 & 87.3 & 74.9 & 16.8 & 45.7 & 85.4
20000 & 81.5 & 8.7 & 61.8 & 89.2 & 73.0 & 18.3 & 36.4 & 84.9
50000 & 86.2 & 6.4 & 68.0 & 92.5 & 70.2 & 21.3 & 29.6 & 84.7
100000 & 88.9 & 4.0 & 72.2 & 93.4 & 69.3 & 22.3 & 29.0 & 84.6
"""


def published_file(name: str) -> Path:
    path = DATA / "replay" / name
    if not path.is_file():
        pytest.skip(f"{path} is missing")
    return path


def write_layouts(folder: Path, name: str, *options: str) -> Path:
    """Run the command on a published file and return its output folder."""
    to = folder / "paper"
    process = raysweep_here(folder, "paper", str(published_file(name)), "--to", str(to), *options)
    assert process.returncode == 0, process.stderr
    return to


@pytest.fixture(scope="module")
def epochs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_layouts(tmp_path_factory.mktemp("epochs"), "sst2_published_epochs.csv")


@pytest.fixture(scope="module")
def epochs() -> pd.DataFrame:
    frame = pd.read_csv(published_file("sst2_published_epochs.csv"))
    return frame.assign(loss=frame.loss.map(NAMES))


@pytest.mark.parametrize("score", ["polarity", "similarity"])
def test_scores_by_margin_and_model_are_from_epoch_5(
    score: str, epochs_folder: Path, epochs: pd.DataFrame
) -> None:
    """Tables 5 and 6."""
    last = epochs[epochs.epoch == 5]
    expected = last.fillna({"margin": 0}).groupby(["model", "loss", "margin"])[score].mean()
    layout = pd.read_csv(epochs_folder / f"by_margin_{score}.csv")
    assert list(layout.columns) == [
        "loss",
        "margin",
        *(f"{model}{end}" for model in MODELS for end in ("", "_std")),
    ]
    assert len(layout) * len(MODELS) == len(expected) == 68
    for row in layout.fillna({"margin": 0}).to_dict("records"):
        for model in MODELS:
            assert row[model] == expected.loc[model, row["loss"], row["margin"]]
    _, *printed = markdown_rows((epochs_folder / f"by_margin_{score}.md").read_text())
    for column, model in enumerate(MODELS, 2):
        best = last[last.model == model][score].max()
        assert [row[column] for row in printed if "**" in row[column]] == [f"**{best:.1f}**"]
    assert len(latex_rows((epochs_folder / f"by_margin_{score}.tex").read_text())) == 18


def test_best_of_each_loss_by_epoch(epochs_folder: Path, epochs: pd.DataFrame) -> None:
    """Figure 3."""
    expected = epochs.groupby(["model", "loss", "epoch"])[["polarity", "similarity"]].max()
    counts = epochs.groupby(["model", "loss", "epoch"]).size()
    layout = pd.read_csv(epochs_folder / "by_rung.csv").set_index(["model", "loss", "rung"])
    assert len(layout) == len(expected) == 80
    for key, row in layout.iterrows():
        assert (row["polarity"], row["similarity"]) == tuple(expected.loc[key])
        assert row["configurations"] == counts.loc[key]
    margins = epochs[
        (epochs.model == "gte-base") & (epochs.loss == "triplet") & (epochs.epoch == 3)
    ]
    best = margins.loc[margins.polarity.idxmax(), "margin"]
    assert layout.loc[("gte-base", "triplet", 3), "polarity_of"] == f"margin {best:g}"
    assert (epochs_folder / "by_rung.png").read_bytes().startswith(b"\x89PNG")


def test_scores_by_number_of_examples_match_table_4(tmp_path: Path) -> None:
    to = write_layouts(tmp_path, "sst2_published_num_examples.csv")
    head, *rows = latex_rows((to / "by_examples.tex").read_text())
    assert head[:4] == ["model", "N", "configurations", "P mean"]
    printed = [[row[1], *row[3:]] for row in rows if row[0] == "all"]
    assert printed == [line.split(" & ") for line in TABLE_4.strip().splitlines()]
    assert {row[2] for row in rows if row[0] == "all"} == {"68"}
    assert (to / "by_examples.png").read_bytes().startswith(b"\x89PNG")


def test_where_selects_rows(tmp_path: Path) -> None:
    to = write_layouts(
        tmp_path,
        "sst2_published_num_examples.csv",
        "--where",
        "model=minilm-6",
        "--where",
        "examples_per_rung=50000",
    )
    frame = pd.read_csv(published_file("sst2_published_num_examples.csv"))
    part = frame[(frame.model == "minilm-6") & (frame.num_examples == 50000)]
    layout = pd.read_csv(to / "by_margin_polarity.csv")
    assert sorted(layout["minilm-6"]) == sorted(part.polarity)
    assert not (to / "by_examples.csv").exists()
