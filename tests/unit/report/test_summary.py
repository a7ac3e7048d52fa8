"""The numbers of a report against brute force: fronts, hypervolumes, best points, constraints."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from raysweep.metrics.objective import Objective
from raysweep.metrics.pareto import hypervolume
from raysweep.metrics.scores import Pair
from raysweep.report import tables, write
from raysweep.report.notes import notes
from raysweep.report.summary import summarize
from raysweep.report.tables import front_table
from raysweep.results.events import GuardsMeasured
from raysweep.results.ledger import Ledger
from raysweep.results.reader import load
from raysweep.results.types import GuardScore
from support.consoles import narrow, printed
from support.ledgers import (
    INFO,
    REFERENCE,
    StoredSweep,
    StoredTrial,
    dev_front,
    random_trials,
    write_ledger,
)


def chords(pairs: Sequence[Pair]) -> list[Pair]:
    """Points on the lines between neighbors, the neighbors among them."""
    shares = np.linspace(0, 1, 101)
    return [
        (
            float(left[0] + share * (right[0] - left[0])),
            float(left[1] + share * (right[1] - left[1])),
        )
        for left, right in itertools.pairwise(pairs)
        for share in shares
    ]


def test_hypervolume_is_above_the_reference_point_of_each_split(run):
    folder = run.folder
    summary = write.write(folder).summary
    grid = np.stack(np.meshgrid(np.arange(0.0005, 1, 0.001), np.arange(0.0005, 1, 0.001)), axis=-1)
    for split in ("dev", "test"):
        area = summary.areas[split]
        reference_point = (REFERENCE[split][0], REFERENCE[split][1] / 2)
        assert area.reference_point == reference_point
        for points, hypervolume_of_points in (
            ([m.on(split) for m in summary.members], area.front),
            (summary.oracles[split], area.oracle),
        ):
            dominated = np.zeros(grid.shape[:2], dtype=bool)
            for point in points:
                dominated |= (grid < (point["polarity"], point["similarity"])).all(axis=-1)
            if points is summary.oracles[split]:  # whose chords count too
                heights = np.interp(
                    grid[..., 0],
                    [point["polarity"] for point in points],
                    [point["similarity"] for point in points],
                    right=0.0,
                )
                dominated |= grid[..., 1] < heights
            assert hypervolume_of_points == pytest.approx(
                (dominated & (grid > reference_point).all(axis=-1)).sum() * 1e-6, abs=1e-3
            )
        assert area.share == pytest.approx(area.front / area.oracle)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("similarity", ["similarity", "retention"])
def test_best_point_is_the_best_of_all_points(tmp_path, weight, similarity):
    info = dataclasses.replace(INFO, polarity_weight=weight, similarity=similarity)
    write_ledger(tmp_path, random_trials(20), StoredSweep(info=info))
    summary = summarize(load(tmp_path))
    all_points = [point for point in summary.results.points if point.trial is not None]

    def score(point):
        return weight * point["polarity"] + (1 - weight) * point[similarity]

    best = [member.dev for member in summary.members if member.is_best]
    assert len(best) == 1
    assert score(best[0]) == max(map(score, all_points)) == info.objective(best[0])
    assert max(max(trial.objectives) for trial in summary.trials if trial.objectives) == score(
        best[0]
    )
    assert sum(member.is_knee for member in summary.members) == 1


def test_single_point_without_reference_and_oracle(tmp_path):
    trials = [StoredTrial({"loss": "triplet"}, "completed", "", [(0.8, 0.4)])]
    write_ledger(tmp_path, trials, StoredSweep(reference=False, oracle=False))
    summary = write.write(tmp_path).summary
    (member,) = summary.members
    assert member.is_knee and member.is_best and not summary.areas
    text = " ".join(notes(summary))
    assert "no hypervolume on dev" in text and "oracle front on dev is not stored" in text


@pytest.mark.parametrize("similarity", ["similarity", "retention"])
@pytest.mark.parametrize("constraints", [{"retention": 0.8}, {"polarity": 0.75, "similarity": 0.3}])
def test_infeasible_members_are_marked_and_do_not_count(tmp_path, constraints, similarity):
    info = dataclasses.replace(INFO, constraints=constraints, similarity=similarity)
    trials = random_trials(20)
    write_ledger(tmp_path, trials, StoredSweep(info=info, test_of=dev_front(trials)))
    summary = write.write(tmp_path).summary
    objective = Objective.of(0.5, similarity, constraints, REFERENCE["dev"])
    points = [p for p in summary.results.points if p.trial is not None and p.split == "dev"]
    pairs = [(p["polarity"], p["similarity"]) for p in points]
    members = {(m.dev["polarity"], m.dev["similarity"]): m for m in summary.members}
    assert 0 < sum(m.is_feasible for m in summary.members) < len(dev_front(trials)) == len(members)
    for pair, member in members.items():
        assert member.is_feasible == all(
            member.dev[name] >= value for name, value in constraints.items()
        )
        assert member.is_best == (pair == objective.best_point(pairs))
        assert member.is_feasible or not member.is_knee
    assert summary.areas["dev"].front == pytest.approx(objective.area(pairs))
    limit = chords([(p["polarity"], p["similarity"]) for p in summary.oracles["dev"]])
    assert summary.areas["dev"].oracle == pytest.approx(objective.area(limit), rel=2e-3)
    feasible = [
        (m.test["polarity"], m.test["similarity"]) for m in summary.members if m.is_feasible
    ]
    assert summary.areas["test"].front == pytest.approx(
        hypervolume(feasible, summary.objectives_by_split["test"].reference_point)
    )
    for trial in summary.trials:
        own = [(p["polarity"], p["similarity"]) for p in points if p.trial == trial.trial.trial]
        if own:
            assert (trial.best["polarity"], trial.best["similarity"]) == objective.best_point(own)
            assert trial.objective == pytest.approx(
                objective.weighted_sum(objective.best_point(own))
            )
            assert trial.is_feasible == (objective.best_value(own) >= 0)
    texts = {
        "retention": "Constraints: retention ≥ 80.0.",
        "polarity": "Constraints: P ≥ 75.0, S ≥ 30.0.",
    }
    for name in ("front.md", "report.html"):
        text = (tmp_path / "report" / name).read_text()
        assert (
            texts[next(iter(constraints))]
            in text.split("Front</h2>" if name == "report.html" else "## Front")[0]
        )
        assert "front members violated the constraints" in text
    marks = [row[0] for row in front_table(summary).rows]
    assert [tables.MISSES in mark for mark in marks] == [
        not member.is_feasible for member in summary.members
    ]


def test_best_point_has_the_smallest_violation_if_none_is_feasible(tmp_path):
    info = dataclasses.replace(INFO, constraints={"polarity": 0.95})
    write_ledger(tmp_path, random_trials(10), StoredSweep(info=info))
    summary = write.write(tmp_path).summary
    (best,) = [member for member in summary.members if member.is_best]
    assert best.dev["polarity"] == max(member.dev["polarity"] for member in summary.members)
    assert sum(member.is_knee for member in summary.members) == 1
    assert summary.areas["dev"].front == 0
    assert any(
        note.startswith("No point meets the constraints (P ≥ 95.0)") for note in notes(summary)
    )
    assert "misses" in printed(narrow(summary), width=80) and "P ≥ 95.0" in printed(
        narrow(summary), width=80
    )


@pytest.mark.parametrize(
    ("scores", "area", "chosen"),
    [
        ((), 0.17 * 0.215 + 0.08 * 0.065, 0),
        ((0.8, 0.7), 0.17 * 0.215 + 0.08 * 0.065, 0),
        ((0.6, 0.7), 0.25 * 0.065, 1),
        ((0.8, 0.6), 0.17 * 0.215, 0),
        ((0.6, 0.6), 0.0, 0),
    ],
)
def test_members_that_miss_a_guard_do_not_count_and_are_not_chosen(tmp_path, scores, area, chosen):
    """Areas computed by hand above (0.63, 0.235). If no member meets the guard, the best is chosen as without it."""
    pairs = {"a": (0.80, 0.45), "b": (0.88, 0.30)}
    write_ledger(
        tmp_path,
        [StoredTrial({"loss": loss}, "completed", "", [pair]) for loss, pair in pairs.items()],
    )
    guards = [
        GuardScore(trial, 1, "plain", None, "sts", "spearman", score, 0.7)
        for trial, score in enumerate(scores)
    ]
    ledger = Ledger(tmp_path)
    ledger.append(GuardsMeasured(scores=tuple(guards)))
    ledger.close()
    summary = summarize(load(tmp_path))
    assert summary.areas["dev"].front == pytest.approx(area)
    (best,) = (member for member in summary.members if member.is_best)
    (knee,) = (member for member in summary.members if member.is_knee)
    assert best.dev.trial == knee.dev.trial == chosen
