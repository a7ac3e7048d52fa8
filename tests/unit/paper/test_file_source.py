"""Recordings of recorded tables, by hand and against what a run's own table says."""

from pathlib import Path

import pandas as pd
import pytest

from raysweep.errors import InputError
from raysweep.paper.file_source import recordings_of_frame
from raysweep.paper.recording import Recording, Scores
from raysweep.paper.run_source import recording_of_run
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
    return pd.DataFrame(rows, columns=["model", "loss", "margin", "epoch", "polarity", "similarity"])


def recordings(made: pd.DataFrame) -> list[Recording]:
    return recordings_of_frame(made, PATH)


def test_each_model_is_a_recording() -> None:
    first, second = recordings(frame())
    assert (first.model, first.origin, first.names_split) == ("m", "t", False)
    triplet, ranking = first.configurations
    assert triplet.values == {"loss": "triplet", "margin": 1}
    assert triplet.rungs == {1: {"dev": Scores(0.70, 0.44)}, 2: {"dev": Scores(0.80, 0.36)}}
    assert ranking.values == {"loss": "multiple_negatives"}
    assert second.configurations[0].last_scores["dev"].polarity == pytest.approx(0.9)


def test_without_a_model_the_file_names_it_and_without_a_budget_there_is_one_rung() -> None:
    made = frame().drop(columns=["model", "epoch"])[1:3].assign(num_examples=[50, 500])
    (found,) = recordings(made)
    assert found.model == "t"
    assert [each.values["examples_per_rung"] for each in found.configurations] == [50, 500]
    assert [list(each.rungs) for each in found.configurations] == [[1], [1]]


def test_examples_seen_are_rungs_by_their_order() -> None:
    (found,) = recordings(frame()[:2].drop(columns="epoch").assign(examples_seen=[2048, 8192]))
    assert list(found.configurations[0].rungs) == [1, 2]


def test_rows_that_repeat_a_point_are_their_mean() -> None:
    repeated = pd.concat([frame()[:1], frame()[:1].assign(polarity=74.0)])
    (found,) = recordings(repeated.assign(polarity_std=[30.0, 40.0]))
    scores = found.configurations[0].last_scores["dev"]
    assert scores.polarity == pytest.approx(0.72)
    assert scores.polarity_std == pytest.approx(((0.3**2 + 0.4**2) / 2) ** 0.5)
    assert scores.similarity_std is None


def test_examples_of_a_rung_do_not_take_the_place_of_examples_in_all() -> None:
    """A recorded table may have both; raysweep's own name for the second is another."""
    both = frame().assign(kind="plain", model="m", examples_per_rung=50, num_examples=[50, 100, 50, 100], epoch=1)
    (recording,) = recordings(both)
    assert sorted(each.values["num_examples"] for each in recording.configurations) == [50, 50, 100]


def test_seconds_may_be_left_out_of_a_row() -> None:
    assert recordings(frame().assign(seconds=[12.0, None, 3.0, None]))


def test_rows_of_no_trial_are_baselines_of_their_model_or_of_all() -> None:
    reference = frame()[:1].assign(kind="reference", polarity=63.0, loss=None, margin=None)
    setfit = frame()[:1].assign(kind="setfit", polarity=78.0, loss=None, margin=None, model=None)
    other_kinds = frame()[:1].assign(kind=["concat"], value=[0.3], polarity=99.0)
    made = pd.concat([frame().assign(kind="plain"), reference, setfit, other_kinds])
    first, second = recordings(made)
    assert {name: scores["dev"].polarity for name, scores in first.baselines.items()} == {
        "reference": 0.63,
        "setfit": 0.78,
    }
    assert list(second.baselines) == ["setfit"]
    assert first.configurations[0].rungs[1]["dev"].polarity == pytest.approx(0.7), "not that of concat"


def test_a_column_of_the_split_is_read() -> None:
    made = pd.concat([frame()[:1].assign(split="dev"), frame()[:1].assign(split="test", polarity=66.0)])
    (found,) = recordings(made)
    assert found.names_split
    assert {split: scores.polarity for split, scores in found.configurations[0].last_scores.items()} == {
        "dev": pytest.approx(0.7),
        "test": pytest.approx(0.66),
    }


def test_a_runs_table_says_what_the_run_says(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", grid())
    of_run = recording_of_run(LocalFolder(folder))
    (of_table,) = recordings(recording_files.to_frame(load(folder)))
    assert [each.values["loss"] for each in of_table.configurations] == [
        each.values["loss"] for each in of_run.configurations
    ]
    for one, other in zip(of_table.configurations, of_run.configurations, strict=True):
        assert list(one.rungs) == list(other.rungs)
        for step, scores in one.rungs.items():
            assert scores["dev"].polarity == pytest.approx(other.rungs[step]["dev"].polarity)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (frame().drop(columns="polarity"), "no column 'polarity'"),
        (frame().assign(similarity=0.4), "polarity is at most 90 and similarity at most 0.4; allowed"),
        (frame().assign(polarity=["x", 1, 2, 3]), "row 1: polarity is x, not a finite number"),
        (frame().assign(polarity_std=[1.0, None, -1.0, None]), "row 3: polarity_std is -0.01, below 0"),
        (frame().assign(epoch=[1, 0.5, 1, 1]), "row 2: epoch is 0.5, not a whole number above 0"),
        (frame().assign(split="train"), "no row has split 'dev' or 'test'"),
        (frame().assign(kind="concat"), "no row has kind 'plain'"),
        (frame()[:0], "holds no rows"),
        (frame().assign(seconds=["1.5s", "2", "3", "4"]), "row 1: seconds is 1.5s, not a finite number"),
        (
            pd.concat(
                [frame().assign(kind="plain"), frame()[:1].assign(kind="probe", value="much")], ignore_index=True
            ),
            "row 5: value is much, not a finite number",
        ),
    ],
)
def test_what_is_refused(made: pd.DataFrame, message: str) -> None:
    with pytest.raises(InputError, match=f"^{PATH}: {message}"):
        recordings(made)
