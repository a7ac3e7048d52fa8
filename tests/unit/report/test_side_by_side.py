"""Compared runs against brute force, and the errors of runs that cannot be compared."""

import dataclasses
import json
import re

import numpy as np
import pytest

from raysweep.errors import InputError
from raysweep.report.figures import comparison_figure
from raysweep.report.side_by_side import Side, compare_runs, labels
from raysweep.report.side_by_side_texts import as_json, difference_table, markdown, notes, sections
from raysweep.report.summary import summary_of
from raysweep.results.events import RungFinished, TrialEnded, TrialStarted
from raysweep.results.ledger import Ledger
from raysweep.results.reader import load
from raysweep.results.types import TrialStatus
from raysweep.storage.folder import LocalFolder
from support.ledgers import (
    INFO,
    REFERENCE,
    StoredSweep,
    StoredTrial,
    dev_front,
    point,
    random_trials,
    write_ledger,
)
from support.query_scores import scores_of, write_query_scores


def side(
    folder, name="run", trials=None, *, scores=True, tested=True, has_reference=True, **changes
):
    """A run in a folder of its own; ``changes`` are those of its info."""
    trials = random_trials(20) if trials is None else trials
    info = dataclasses.replace(INFO, **changes)
    run = folder / name
    run.mkdir()
    write_ledger(
        run,
        trials,
        StoredSweep(
            info=info, test_of=dev_front(trials) if tested else (), reference=has_reference
        ),
    )
    results = load(run)
    if scores:
        write_query_scores(run, results)
    return Side(name, summary_of(LocalFolder(run), results))


@pytest.fixture
def two(tmp_path):
    return side(tmp_path, "a", random_trials(20, 0)), side(tmp_path, "b", random_trials(20, 1))


def exact_area(points, begin):
    """The area that points dominate above ``begin``, by strips of falling P."""
    area, highest = 0.0, begin[1]
    for polarity, similarity in sorted(map(tuple, points), reverse=True):
        if polarity > begin[0] and similarity > highest:
            area += (polarity - begin[0]) * (similarity - highest)
            highest = similarity
    return area


def pairs(front):
    return [(point["polarity"], point["similarity"]) for point in front]


def test_hypervolumes_are_above_one_reference_point(two):
    comparison = compare_runs(two)
    assert comparison.splits == ("dev", "test")
    for split in comparison.splits:
        begin = REFERENCE[split][0], REFERENCE[split][1] / 2
        assert comparison.reference_points[split] == pytest.approx(begin)
        expected = [exact_area(pairs(run.front.on(split)), begin) for run in two]
        assert comparison.areas[split] == pytest.approx(expected)
        (difference,) = [item for item in comparison.differences if item.split == split]
        assert (difference.label, difference.other) == ("b", "a")
        assert difference.estimate == pytest.approx(
            comparison.areas[split][1] - comparison.areas[split][0]
        )


def test_dominated_points_equal_brute_force(two):
    comparison = compare_runs(two)
    assert len(comparison.dominations) == 4
    for domination in comparison.dominations:
        mine, theirs = two if domination.label == "a" else two[::-1]
        expected = []
        for member in theirs.summary.members:
            point = member.on(domination.split)
            for other in mine.front.on(domination.split):
                as_good = (
                    other["polarity"] >= point["polarity"]
                    and other["similarity"] >= point["similarity"]
                )
                if as_good and pairs([other]) != pairs([point]):
                    expected.append(member.dev.name)
                    break
        assert list(domination.names) == expected
        assert domination.num_points == len(theirs.summary.members)


def test_interval_equals_a_paired_bootstrap(two):
    """The interval is compared with an explicit bootstrap that uses the same queries for both runs."""
    difference = next(item for item in compare_runs(two).differences if item.split == "test")
    points = [run.front.on("test") for run in two]
    reference = two[0].summary.references["test"]
    per_query = [np.array([scores_of(point, 400) for point in front]) for front in points]
    of_reference = np.array(scores_of(reference, 400))
    rng = np.random.default_rng(5)
    drawn = []
    for _ in range(300):
        queries = rng.integers(400, size=400)
        begin = of_reference[:, queries].mean(axis=1) * [1, 0.5]
        areas = [exact_area(scores[:, :, queries].mean(axis=2), begin) for scores in per_query]
        drawn.append(areas[1] - areas[0])
    half_width = 1.645 * np.std(drawn)
    interval = difference.interval
    assert interval.contains(difference.estimate)
    assert (interval.high - interval.low) / 2 == pytest.approx(half_width, rel=0.25)


def with_replicates(folder, name, deviation):
    """Write a run of two configurations; the first ran three times."""
    side(
        folder,
        name,
        [StoredTrial({"loss": "a"}, "completed", "", [(0.8, 0.42)])] * 2,
        scores=False,
        tested=False,
    )
    ledger = Ledger(folder / name)
    for trial, sign in ((2, 1), (3, -1)):
        ledger.append(TrialStarted(trial=trial, config={"loss": "a"}, num_rungs=1, replicate_of=0))
        points = (point(trial, 1, 0.8 + sign * deviation, 0.42 - sign * deviation),)
        rung = {
            "trial": trial,
            "step": 1,
            "examples_seen": 1024,
            "seconds": 1.0,
            "loss": 0.1,
            "stop": None,
        }
        ledger.append(RungFinished(**rung, points=points))
        ledger.append(TrialEnded(trial=trial, status=TrialStatus.COMPLETED, reason=""))
    ledger.close()
    results = load(folder / name)
    write_query_scores(folder / name, results)
    return Side(name, summary_of(LocalFolder(folder / name), results))


def test_replicates_add_seed_noise_to_the_interval(tmp_path):
    """A run without replicates uses the seed noise of the other run."""
    plain = side(
        tmp_path,
        "plain",
        [StoredTrial({"loss": "b"}, "completed", "", [(0.82, 0.41)])],
        tested=False,
    )
    wide, narrow = (
        with_replicates(tmp_path, name, size) for name, size in (("wide", 0.03), ("narrow", 0.002))
    )
    comparisons = [compare_runs([replicated, plain]) for replicated in (wide, narrow)]
    for comparison in comparisons:
        (difference,) = comparison.differences
        assert (difference.has_seeds, difference.noise) == (True, "queries and seeds")
        (row,) = dict(sections(comparison))["Difference in hypervolume"].rows
        assert row[-1] == "queries and seeds"
        assert any("seeds" in note and "queries" in note for note in notes(comparison))
        assert as_json(comparison)["differences"][0]["over"] == "queries and seeds"
    assert (
        comparisons[0].differences[0].interval.half_width
        > 1.5 * comparisons[1].differences[0].interval.half_width
    )
    alone = compare_runs(
        [plain, side(tmp_path, "other", random_trials(9), tested=False)]
    ).differences[0]
    assert (alone.has_seeds, alone.noise) == (False, "queries")


def test_identical_runs_have_no_difference(tmp_path):
    comparison = compare_runs([side(tmp_path, "a"), side(tmp_path, "b")])
    for difference in comparison.differences:
        assert (difference.estimate, difference.interval.low, difference.interval.high) == (0, 0, 0)
    assert not any(
        domination.names for domination in comparison.dominations if domination.split == "dev"
    )
    assert comparison.settings == ()
    assert [setting.name for setting in comparison.best_configs] == ["best point"]


def test_intervals_of_several_runs_are_simultaneous(tmp_path):
    """Bonferroni's correction widens each interval."""
    sides = [side(tmp_path, name, random_trials(20, seed)) for seed, name in enumerate("abc")]
    alone = {difference.split: difference for difference in compare_runs(sides[:2]).differences}
    comparison = compare_runs(sides)
    assert [difference.label for difference in comparison.differences] == ["b", "c", "b", "c"]
    for difference in comparison.differences[::2]:
        assert difference.interval.half_width > 1.1 * alone[difference.split].interval.half_width
    assert any("Bonferroni" in note and "90%" in note for note in notes(comparison))
    assert any(
        "simultaneous 90% interval" in column for column in difference_table(comparison).columns
    )
    assert len(comparison.dominations) == 12


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"dataset": "mails.csv"}, "b: dataset is mails.csv; allowed: reviews.csv"),
        ({"reference": "e5-small"}, "b: reference encoder is e5-small; allowed: all-MiniLM-L6-v2"),
        ({"k": 8}, "b: k is 8; allowed: 16"),
        ({"rank_weights": "linear"}, "b: rank weights is linear; allowed: uniform"),
    ],
)
def test_runs_of_different_tasks_are_rejected(tmp_path, changes, problem):
    sides = [side(tmp_path, "a"), side(tmp_path, "b", **changes)]
    with pytest.raises(InputError) as error:
        compare_runs(sides)
    assert str(error.value).startswith(problem)
    assert "\n" not in str(error.value)


def test_runs_with_different_dev_queries_are_compared_on_test_only(tmp_path):
    sides = [side(tmp_path, "a"), side(tmp_path, "b", num_queries={"dev": 800, "test": 400})]
    comparison = compare_runs(sides)
    assert comparison.splits == ("test",)
    assert any(re.search("dev.*b has 800 .*a has 900", note) for note in comparison.notes)


def test_runs_without_a_common_split_are_rejected(tmp_path):
    sides = [side(tmp_path, "a"), side(tmp_path, "b", num_pool={"dev": 1, "test": 2})]
    with pytest.raises(InputError, match="dev.*b has 1 .*pool.*a has 4500"):
        compare_runs(sides)


def test_different_reference_scores_are_rejected(tmp_path, monkeypatch):
    first = side(tmp_path, "a", tested=False)
    monkeypatch.setitem(REFERENCE, "dev", (0.64, 0.47))
    second = side(tmp_path, "b", tested=False)
    with pytest.raises(InputError, match=r"dev.*P 64.00, S 47.00 in b and P 63.00, S 47.00 in a"):
        compare_runs([first, second])


@pytest.mark.parametrize("which", ["a", "b"])
def test_runs_without_query_scores_have_no_interval_and_a_note(tmp_path, which):
    sides = [side(tmp_path, "a", scores=which != "a"), side(tmp_path, "b", scores=which != "b")]
    comparison = compare_runs(sides)
    assert all(difference.interval is None for difference in comparison.differences)
    assert any(
        re.search(f"no interval: {which} .*per-query scores", note) for note in notes(comparison)
    )


def test_different_queries_with_equal_means_have_no_interval(tmp_path):
    first, second = side(tmp_path, "a"), side(tmp_path, "b", scores=False)
    results = second.summary.results
    write_query_scores(
        tmp_path / "b", results, lambda point, num_queries: scores_of(point, num_queries, seed=1)
    )
    second = dataclasses.replace(second, summary=summary_of(LocalFolder(tmp_path / "b")))
    comparison = compare_runs([first, second])
    (reason,) = {difference.why_none for difference in comparison.differences}
    assert re.search("b and a .*queries", reason)


def test_an_empty_run_has_no_front(tmp_path):
    comparison = compare_runs([side(tmp_path, "a"), side(tmp_path, "empty", [], tested=False)])
    assert comparison.splits == ("dev", "test")
    assert not comparison.differences and not comparison.dominations
    assert any("empty has no front" in note for note in comparison.notes)
    rows = dict(sections(comparison))["Runs"].rows
    assert rows[1][3:] == ("0", "–", "–")  # noqa: RUF001
    assert as_json(comparison)["runs"][1]["hypervolume"] == {"dev": None, "test": None}


def test_runs_without_any_front_are_rejected(tmp_path):
    failed = [StoredTrial({"loss": "triplet"}, "failed", "it broke", [])]
    sides = [side(tmp_path, "a", failed, tested=False), side(tmp_path, "b", [], tested=False)]
    with pytest.raises(InputError, match="a, .*b: .*no fronts"):
        compare_runs(sides)


def test_runs_without_the_references_scores_have_no_hypervolume(tmp_path):
    sides = [
        side(tmp_path, name, random_trials(9, seed), has_reference=False)
        for seed, name in enumerate("ab")
    ]
    comparison = compare_runs(sides)
    assert not comparison.areas and not comparison.differences and comparison.dominations
    assert any("reference encoder" in note for note in comparison.notes)


def test_common_constraints_apply_to_hypervolumes(tmp_path):
    constraints = {"polarity": 0.8}
    sides = [
        side(tmp_path, name, random_trials(20, seed), constraints=constraints)
        for seed, name in enumerate("ab")
    ]
    comparison = compare_runs(sides)
    expected = [run.summary.areas["test"].front for run in sides]
    assert comparison.areas["test"] == pytest.approx(expected)
    mixed = compare_runs([sides[0], side(tmp_path, "c")])
    assert mixed.areas["test"][0] > comparison.areas["test"][0]
    assert any("different constraints" in note for note in mixed.notes)


def test_only_differing_settings_are_listed(tmp_path):
    common = {"k": 16, "budget.trials": 20}
    one, other = side(tmp_path, "a"), side(tmp_path, "b", version="0.2.0")
    one = dataclasses.replace(one, settings={**common, "sampler": "mfgp", "seed": 0})
    other = dataclasses.replace(
        other, settings={**common, "sampler": "tpe", "space.loss": "triplet", "seed": 0}
    )
    comparison = compare_runs([one, other])
    assert {setting.name: setting.values for setting in comparison.settings} == {
        "sampler": ("mfgp", "tpe"),
        "space.loss": (None, "triplet"),
        "version": ("0.1.0", "0.2.0"),
    }


def test_markdown_has_every_table_and_the_picture(two):
    comparison = compare_runs(two)
    text = markdown(comparison)
    assert "![Fronts of the runs](compare.png)" in text
    for title, table in sections(comparison):
        assert f"## {title}" in text
        assert text.count("\n| ") >= len(table.rows)
    assert json.loads(json.dumps(as_json(comparison)))["runs"][0]["label"] == "a"


def test_figure_of_an_empty_run_is_a_png(tmp_path):
    sides = [side(tmp_path, "$a$", random_trials(9)), side(tmp_path, "b", [], tested=False)]
    assert comparison_figure(compare_runs(sides)).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("locations", "expected"),
    [
        (["runs/a", "runs/b"], ["a", "b"]),
        (["old/a", "new/a"], ["old/a", "new/a"]),
        (["s3://bucket/x/a", "a/"], ["x/a", "a"]),
    ],
)
def test_names_of_runs_are_distinct(locations, expected):
    assert labels(locations) == expected


def test_a_run_cannot_be_compared_with_itself():
    with pytest.raises(InputError, match="runs/a/.*twice"):
        labels(["runs/a", "runs/b", "runs/a/"])
