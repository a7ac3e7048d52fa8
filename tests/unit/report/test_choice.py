"""Selection of a run's points against brute force."""

import dataclasses
import re

import pytest

from raysweep.errors import InputError
from raysweep.report.choice import Selection, candidates_as_json, choose
from raysweep.report.summary import summarize, summary_of
from raysweep.report.terminal import choice_lines, choice_tables
from raysweep.results.query_scores import kept_names, name_of_point
from raysweep.results.reader import load
from raysweep.storage.folder import LocalFolder
from support.consoles import printed
from support.ledgers import INFO, StoredSweep, StoredTrial, dev_front, random_trials, write_ledger
from support.query_scores import write_query_scores


@pytest.fixture
def summary(run):
    return summarize(load(run.folder))


@pytest.fixture
def with_scores(run):
    write_query_scores(run.folder, load(run.folder))
    return summary_of(LocalFolder(run.folder))


def names(chosen):
    return [candidate.dev.name for candidate in chosen.candidates]


def test_default_choice_is_the_front(summary):
    chosen = choose(summary, Selection())
    assert [candidate.dev for candidate in chosen.candidates] == [
        member.dev for member in summary.members
    ]
    assert [candidate.test for candidate in chosen.candidates] == [
        member.test for member in summary.members
    ]


def test_all_operating_points_are_sorted_by_objective(summary):
    points = [
        point
        for point in summary.results.points
        if point.trial is not None and point.split == "dev"
    ]
    expected = sorted(points, key=lambda point: -(point["polarity"] + point["similarity"]))
    assert names(choose(summary, Selection(everything=True))) == [point.name for point in expected]


@pytest.mark.parametrize("by", ["objective", "polarity", "similarity", "retention"])
@pytest.mark.parametrize("top", [None, 1, 3, 99])
@pytest.mark.parametrize("everything", [False, True])
def test_best_points_by_score_among_those_that_meet_the_conditions(summary, by, top, everything):
    wanted = Selection(
        ["polarity >= 0.7", "retention > 0.6"], by=by, top=top, everything=everything
    )
    points = [
        point
        for point in summary.results.points
        if point.trial is not None and point.split == "dev"
    ]
    if not everything:
        points = [member.dev for member in summary.members]
    meeting = [point for point in points if point["polarity"] >= 0.7 and point["retention"] > 0.6]
    score = summary.results.info.objective if by == "objective" else lambda point: point[by]
    expected = sorted(meeting, key=score, reverse=True)[: top or 1]
    assert names(choose(summary, wanted)) == [point.name for point in expected]


def test_knee_of_the_run_or_of_the_points_that_meet_the_conditions(summary):
    (knee,) = (member.dev.name for member in summary.members if member.is_knee)
    assert names(choose(summary, Selection(knee=True))) == [knee]
    assert names(choose(summary, Selection(knee=True, everything=True))) == [knee]
    first, second = summary.members[:2]
    above = f"similarity >= {second.dev['similarity']!r}"
    (chosen,) = choose(
        summary, Selection([above], knee=True)
    ).candidates  # of two points, that of the greater product
    assert chosen.dev == max(
        (first.dev, second.dev), key=lambda point: point["polarity"] * point["similarity"]
    )


def test_infeasible_points_come_last(tmp_path):
    info = dataclasses.replace(INFO, constraints={"polarity": 0.8})
    write_ledger(tmp_path, random_trials(14), StoredSweep(info=info))
    summary = summarize(load(tmp_path))
    ranked = choose(summary, Selection(by="similarity", top=99)).candidates
    meets = [candidate.dev["polarity"] >= 0.8 for candidate in ranked]
    assert meets == sorted(meets, reverse=True) and len(set(meets)) == 2
    assert [candidate.is_feasible for candidate in ranked] == meets


def test_unmet_conditions_report_the_range_of_the_points(summary):
    chosen = choose(summary, Selection(["polarity >= 0.999", "kind = plain"]))
    num_members = len(summary.members)
    highest = max(member.dev["polarity"] for member in summary.members)
    assert chosen.candidates == ()
    assert f"polarity >= 0.999 is met by 0 of {num_members} points (" in chosen.why_none
    assert f"to {highest:.4g})" in chosen.why_none
    assert f"kind = plain is met by {num_members} of {num_members} points" in chosen.why_none
    assert "--all" not in chosen.why_none


def test_unmet_conditions_report_matches_off_the_front(summary):
    members = {member.dev.name for member in summary.members}
    other = next(
        point
        for point in summary.results.points
        if point.trial is not None and point.name not in members
    )
    chosen = choose(summary, Selection([f"trial = {other.trial}", f"step = {other.step}"]))
    assert re.search("with --all, 1 of ", chosen.why_none)


def test_a_missing_score_is_rejected_as_criterion(summary):
    with pytest.raises(InputError, match="--best is accuracy.*allowed: objective, polarity"):
        choose(summary, Selection(by="accuracy"))


def test_knee_excludes_best_and_top(summary):
    with pytest.raises(InputError, match="--knee.*--best.*--top"):
        choose(summary, Selection(knee=True, top=3))


@pytest.mark.parametrize(
    ("trials", "reason"),
    [
        ([], "no trial finished a rung"),
        (
            [StoredTrial({"loss": "triplet"}, "failed", "it broke", [])] * 2,
            "no trial finished a rung (2 of 2 failed)",
        ),
        ([StoredTrial({"loss": "triplet"}, "running", "", [])], "no trial finished a rung"),
    ],
)
def test_a_run_without_points_is_rejected(tmp_path, trials, reason):
    write_ledger(tmp_path, trials)
    with pytest.raises(InputError) as error:
        choose(summarize(load(tmp_path)), Selection())
    assert str(error.value).startswith(f"{tmp_path}: ") and reason in str(error.value)
    assert "\n" not in str(error.value)


def test_points_of_a_running_sweep_can_be_chosen(tmp_path):
    trials = [trial._replace(status="running") for trial in random_trials(8)]
    write_ledger(tmp_path, trials, StoredSweep(finish=None))
    assert names(choose(summarize(load(tmp_path)), Selection())) == [
        point.name for point in dev_front(trials)
    ]


def test_json_has_unscaled_scores_and_the_export_command(summary):
    chosen = choose(summary, Selection(top=1)).candidates
    (row,) = candidates_as_json(summary, chosen, ("dev", "test"))
    point = chosen[0].dev
    assert row["dev"]["polarity"] == point["polarity"]
    assert row["dev"]["intervals"] is None
    assert "per-query scores" in row["dev"]["why_no_intervals"]
    assert row["test"]["similarity"] == pytest.approx(point["similarity"] - 0.01)
    assert row["marks"][-1] == "best"
    folder = f"{summary.results.info.name}-{point.name.replace(':', '-')}"
    assert (
        row["export"] == f"raysweep export {summary.results.folder} {folder} --point {point.name}"
    )
    assert row["config"] == dict(chosen[0].config)


def test_tables_get_narrower(with_scores):
    summary = with_scores
    chosen = choose(summary, Selection()).candidates
    texts = [printed(table) for table in choice_tables(summary, chosen, ("dev", "test"))]
    widths = [max(len(line.rstrip()) for line in text.splitlines()) for text in texts]
    assert widths == sorted(widths, reverse=True) and widths[-1] < 80
    for text in texts:
        assert all(candidate.dev.name in text for candidate in chosen)
    known = summary.intervals_of(chosen[0].dev)
    interval = f"[{100 * known['polarity'].low:.1f}, {100 * known['polarity'].high:.1f}]"
    assert interval in texts[0] and interval in texts[1] and "[" not in texts[2]


def test_intervals_equal_those_of_the_report(with_scores):
    chosen = choose(with_scores, Selection()).candidates
    for candidate, row in zip(
        chosen, candidates_as_json(with_scores, chosen, ("dev", "test")), strict=True
    ):
        for split in ("dev", "test"):
            known = with_scores.uncertainty[split].members[name_of_point(candidate.dev)]
            for name in ("polarity", "similarity", "retention"):
                interval = getattr(known, name)
                assert row[split]["intervals"][name] == [interval.low, interval.high]
            assert row[split]["intervals"]["level"] == 0.9
    lines = list(choice_lines(with_scores, chosen, ("dev", "test")))
    assert any("90% intervals over queries" in line for line in lines)
    assert not any("are missing" in line for line in lines)


def test_points_far_from_the_front_have_a_reason_instead_of_intervals(with_scores):
    chosen = choose(with_scores, Selection(everything=True)).candidates
    near = kept_names(with_scores.results)
    rows = candidates_as_json(with_scores, chosen, ("dev",))
    known = [name_of_point(candidate.dev) in near for candidate in chosen]
    assert set(known) == {True, False}
    assert [row["dev"]["intervals"] is not None for row in rows] == known
    off_front = next(
        candidate.dev
        for candidate, is_near in zip(chosen, known, strict=True)
        if is_near and not candidate.member
    )
    assert with_scores.intervals_of(off_front)["polarity"].half_width > 0
    (line,) = (
        line
        for line in choice_lines(with_scores, chosen, ("dev",))
        if line.startswith("Intervals ")
    )
    assert re.search(f"on dev .* {known.count(False)} of .*three standard errors", line)


def test_missing_query_scores_are_one_line_per_split(summary):
    chosen = choose(summary, Selection()).candidates
    lines = [
        line
        for line in choice_lines(summary, chosen, ("dev", "test"))
        if line.startswith("Intervals ")
    ]
    assert len(lines) == 2
    for line, split in zip(lines, ("dev", "test"), strict=True):
        assert re.search(f"on {split} .*per-query scores", line)


def test_configurations_name_searched_parameters_that_do_not_vary(tmp_path):
    info = dataclasses.replace(INFO, searched=("loss", "freezing"))
    config = {"loss": "triplet", "margin": 0.1, "freezing": "emb"}
    write_ledger(tmp_path, [StoredTrial(config, "completed", "", [(0.8, 0.4)])], StoredSweep(info))
    summary = summarize(load(tmp_path))
    lines = choice_lines(summary, choose(summary, Selection()).candidates, ("dev",))
    assert "trial 0: triplet, freezing emb" in lines


def test_points_off_the_front_have_no_export_command(summary):
    off_front = [
        candidate
        for candidate in choose(summary, Selection(everything=True)).candidates
        if not candidate.member
    ][:2]
    assert [row["export"] for row in candidates_as_json(summary, off_front, ("dev",))] == [
        None,
        None,
    ]
    lines = list(choice_lines(summary, off_front, ("dev",)))
    assert not any("raysweep export" in line for line in lines)
    assert "exported" in lines[-1]
