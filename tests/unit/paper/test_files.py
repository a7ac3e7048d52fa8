"""Scores from files, by hand and against a run's own recording."""

from pathlib import Path

import pandas as pd
import pytest

from raysweep.errors import InputError
from raysweep.paper.model_scores import ModelScores, Scores
from raysweep.paper.sources import read_rows, read_run
from raysweep.replay import recording_files
from raysweep.results.reader import load
from raysweep.storage.folder import LocalFolder
from support.tables import grid, write_run

PATH = Path("folder/t.csv")


def frame() -> pd.DataFrame:
    rows = [
        ("m", "TripletLoss", 1.0, 1, 70.0, 44.0),
        ("m", "TripletLoss", 1.0, 2, 80.0, 36.0),
        ("m", "MultipleNegativesRankingLoss", None, 1, 68.0, 45.0),
        ("n", "TripletLoss", 1.0, 1, 90.0, 84.0),
    ]
    return pd.DataFrame(
        rows, columns=["model", "loss", "margin", "epoch", "polarity", "similarity"]
    )


def read(rows: pd.DataFrame) -> list[ModelScores]:
    return read_rows(rows, PATH)


def test_each_model_is_separate() -> None:
    first, second = read(frame())
    assert (first.model, first.origin, first.names_split) == ("m", "t", False)
    triplet, ranking = first.configurations
    assert triplet.values == {"loss": "triplet", "margin": 1}
    assert triplet.rungs == {1: {"dev": Scores(0.70, 0.44)}, 2: {"dev": Scores(0.80, 0.36)}}
    assert ranking.values == {"loss": "multiple_negatives"}
    assert second.configurations[0].rungs[1]["dev"].polarity == pytest.approx(0.9)


def test_files_without_model_or_budget_have_one_model_and_rung() -> None:
    rows = frame().drop(columns=["model", "epoch"])[1:3].assign(num_examples=[50, 500])
    (model,) = read(rows)
    assert model.model == "t"
    assert [
        configuration.values["examples_per_rung"] for configuration in model.configurations
    ] == [50, 500]
    assert [list(configuration.rungs) for configuration in model.configurations] == [[1], [1]]


def test_examples_seen_are_numbered() -> None:
    (model,) = read(frame()[:2].drop(columns="epoch").assign(examples_seen=[2048, 8192]))
    assert list(model.configurations[0].rungs) == [1, 2]


def test_rungs_are_numbered_within_their_trial() -> None:
    rows = pd.concat([frame()[:2], frame()[:2].assign(polarity=[60.0, 66.0])]).drop(columns="epoch")
    seen = rows.assign(trial=[0, 0, 1, 1], examples_seen=[512, 1024, 256, 512])
    (model,) = read(seen.reset_index(drop=True))
    (configuration,) = model.configurations
    polarities = {rung: scores["dev"].polarity for rung, scores in configuration.rungs.items()}
    assert polarities == pytest.approx({1: 0.65, 2: 0.73})


def test_an_unnamed_index_column_is_no_parameter() -> None:
    (model,) = read(frame()[:2].assign(**{"Unnamed: 0": [0, 1]}))
    assert len(model.configurations) == 1


def test_repeated_rows_are_averaged() -> None:
    repeated = pd.concat([frame()[:1], frame()[:1].assign(polarity=74.0)])
    (model,) = read(repeated.assign(polarity_std=[30.0, 40.0]))
    scores = model.configurations[0].rungs[1]["dev"]
    assert scores.polarity == pytest.approx(0.72)
    assert scores.polarity_std == pytest.approx(((0.3**2 + 0.4**2) / 2) ** 0.5)
    assert scores.similarity_std is None


def test_num_examples_is_a_parameter_next_to_examples_per_rung() -> None:
    both = frame().assign(
        kind="plain", model="m", examples_per_rung=50, num_examples=[50, 100, 50, 100], epoch=1
    )
    (recording,) = read(both)
    assert sorted(
        configuration.values["num_examples"] for configuration in recording.configurations
    ) == [50, 50, 100]


def test_seconds_may_be_empty() -> None:
    assert read(frame().assign(seconds=[12.0, None, 3.0, None]))


def test_baselines_belong_to_their_model_or_to_all() -> None:
    reference = frame()[:1].assign(kind="reference", polarity=63.0, loss=None, margin=None)
    setfit = frame()[:1].assign(kind="setfit", polarity=78.0, loss=None, margin=None, model=None)
    other_kinds = frame()[:1].assign(kind=["concat"], value=[0.3], polarity=99.0)
    rows = pd.concat([frame().assign(kind="plain"), reference, setfit, other_kinds])
    first, second = read(rows)
    assert {name: scores["dev"].polarity for name, scores in first.baselines.items()} == {
        "reference": 0.63,
        "setfit": 0.78,
    }
    assert list(second.baselines) == ["setfit"]
    assert first.configurations[0].rungs[1]["dev"].polarity == pytest.approx(0.7), (
        "not that of concat"
    )


def test_the_split_is_read() -> None:
    rows = pd.concat(
        [frame()[:1].assign(split="dev"), frame()[:1].assign(split="test", polarity=66.0)]
    )
    (model,) = read(rows)
    assert model.names_split
    assert {
        split: scores.polarity for split, scores in model.configurations[0].rungs[1].items()
    } == {
        "dev": pytest.approx(0.7),
        "test": pytest.approx(0.66),
    }


def test_a_recording_equals_its_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", grid())
    of_run = read_run(LocalFolder(folder))
    (recorded,) = read(recording_files.to_frame(load(folder)))
    assert [configuration.values["loss"] for configuration in recorded.configurations] == [
        configuration.values["loss"] for configuration in of_run.configurations
    ]
    for one, other in zip(recorded.configurations, of_run.configurations, strict=True):
        assert list(one.rungs) == list(other.rungs)
        for step, scores in one.rungs.items():
            assert scores["dev"].polarity == pytest.approx(other.rungs[step]["dev"].polarity)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (frame().drop(columns="polarity"), "column 'polarity'"),
        (frame().assign(similarity=0.4), "polarity .* 90 and similarity .* 0.4; allowed"),
        (frame().assign(polarity=["x", 1, 2, 3]), "row 1: polarity is x; .*finite"),
        (
            frame().assign(polarity_std=[1.0, None, -1.0, None]),
            "row 3: polarity_std is -1.0; .*nonnegative",
        ),
        (frame().assign(epoch=[1, 0.5, 1, 1]), "row 2: epoch is 0.5; .*above 0"),
        (frame().assign(split="train"), "no row .*'dev' or 'test'"),
        (frame().assign(kind="concat"), "no row .*'plain'"),
        (frame()[:0], "no row"),
        (
            pd.concat(
                [frame().assign(kind="plain"), frame()[:1].assign(kind="probe", value="much")],
                ignore_index=True,
            ),
            "row 5: value is much; .*finite",
        ),
    ],
)
def test_invalid_rows_are_rejected(rows: pd.DataFrame, message: str) -> None:
    with pytest.raises(InputError, match=f"^{PATH}: {message}"):
        read(rows)
