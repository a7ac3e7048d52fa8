"""Intervals and other statistics from per-query scores, and their description."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel

from raysweep.errors import InputError
from raysweep.metrics.pareto import hypervolume
from raysweep.metrics.scores import Pair
from raysweep.report import write
from raysweep.report.notes import notes
from raysweep.report.replicates import StoredRuns
from raysweep.report.summary import Summary, summarize, summary_of
from raysweep.report.tables import certainty_table, mean_table
from raysweep.report.trust import trust_lines, trust_sentences
from raysweep.results.events import (
    PointsScored,
    ReplicatesAveraged,
    RungFinished,
    TrialEnded,
    TrialStarted,
)
from raysweep.results.ledger import Ledger
from raysweep.results.query_scores import load_query_scores, name_of_point
from raysweep.results.reader import load
from raysweep.results.readings import FILE
from raysweep.results.scores import Score
from raysweep.results.types import Mean, TrialStatus
from raysweep.results.views import front_points
from raysweep.storage.folder import LocalFolder
from raysweep.uncertainty import interval
from raysweep.uncertainty.front import Floor
from raysweep.uncertainty.interval import Interval
from raysweep.uncertainty.seeds import of_queries, of_runs
from raysweep.uncertainty.selection import optimism
from support.consoles import narrow, printed
from support.ledgers import (
    INFO,
    StoredSweep,
    StoredTrial,
    baseline,
    dev_front,
    point,
    random_trials,
    write_ledger,
)
from support.query_scores import invented_readings, write_query_scores, write_readings

FEW = dataclasses.replace(INFO, num_queries={"dev": 60, "test": 50})


def made(
    folder: Path, *, info: object = FEW, test: bool = True, probe: float = 0.64
) -> LocalFolder:
    trials = random_trials(14)
    probes = [
        baseline(split, "probe", probe + 0.05 * value, 0.45, value=value)
        for split in ("dev", "test")
        for value in (0.1, 1.0)
    ]
    tested = dev_front(trials) if test else ()
    write_ledger(folder, trials, StoredSweep(info=info, test_of=tested, baselines=probes))  # type: ignore[arg-type]
    write_query_scores(folder, load(folder))
    return LocalFolder(folder)


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    return summary_of(made(tmp_path))


def test_intervals_on_dev_are_corrected_for_selection(summary: Summary, tmp_path: Path) -> None:
    scores = load_query_scores(LocalFolder(tmp_path), load(tmp_path))
    dev, test = scores["dev"], scores["test"]
    of_trials = [row for row, name in enumerate(dev.names) if name[0] is not None]
    added = optimism(dev.scores[of_trials], seed=FEW.seed)
    assert list(summary.uncertainty) == ["dev", "test"]
    for member in summary.members:
        name = name_of_point(member.dev)
        on_test = interval.of_mean(test.scores[test.index(name), 0])
        assert summary.uncertainty["test"].members[name].polarity == on_test
        expected = interval.of_mean(dev.scores[dev.index(name), 1] - added[1])
        on_dev = summary.uncertainty["dev"].members[name].similarity
        assert (on_dev.low, on_dev.high) == pytest.approx((expected.low, expected.high))
    drop = summary.certainty.drops["P"]
    front = summary.members
    total = np.mean(
        [member.dev["polarity"] - member.test["polarity"] for member in front if member.test]
    )
    assert drop.total == pytest.approx(total, abs=1e-4)
    assert (drop.selection, drop.total) == pytest.approx((added[0], drop.selection + drop.shift))
    assert drop.total_interval.contains(drop.total) and drop.reference is not None


def test_areas_and_knee_have_intervals(summary: Summary) -> None:
    for split, front in summary.uncertainty.items():
        area = summary.areas[split]
        assert front.hypervolume is not None and front.share is not None and area.share is not None
        assert front.hypervolume.low < area.front
        assert 0 < front.share.low < front.share.high
        assert sum(point.knee_share for point in front.members.values()) == pytest.approx(1)
    stable = summary.uncertainty["dev"].members.values()
    assert all(0 < point.stability <= 1 for point in stable)
    assert summary.uncertainty["dev"].num_compared > len(summary.members)
    assert len(summary.certainty.from_knee) == len(summary.members) - 1


def test_differences_from_the_knee_are_paired_on_the_same_queries(tmp_path: Path) -> None:
    """Differences and intervals equal those of SciPy's paired t test."""
    summary = summary_of(made(tmp_path))
    certainty = summary.certainty
    assert certainty.compared_on == "test"
    stored = summary.scores["test"]
    (knee,) = (name_of_point(member.dev) for member in summary.members if member.is_knee)
    cells = {row[:3]: row[-2:] for row in certainty_table(summary).rows}
    for name, from_knee in certainty.from_knee.items():
        trial, step, kind, _ = name
        shown = cells[str(trial), str(step), kind]
        for number, (score, cell) in enumerate(zip(("polarity", "similarity"), shown, strict=True)):
            scores = stored.scores[:, number]
            expected = ttest_rel(scores[stored.index(name)], scores[stored.index(knee)])
            low, high = expected.confidence_interval(0.9)
            difference = getattr(from_knee, score)
            assert difference.p_value == pytest.approx(expected.pvalue)
            assert (difference.interval.low, difference.interval.high) == pytest.approx((low, high))
            assert difference.estimate == pytest.approx((low + high) / 2)
            assert cell.startswith("+" if difference.estimate > 0 else "-")
            assert cell.endswith(f"[{100 * low:.1f}, {100 * high:.1f}]")


def test_page_states_whether_the_front_beats_the_floor(tmp_path: Path) -> None:
    verdicts = {"low": "the front beats this floor", "high": "the floor is better than the front"}
    for name, probe in (("low", 0.64), ("high", 0.88)):
        verdict = verdicts[name]
        folder = tmp_path / name
        folder.mkdir()
        run = made(folder, probe=probe)
        summary = summary_of(run)
        assert any(verdict in sentence for sentence in trust_sentences(summary))
        write.write(run)
        for file in ("front.md", "report.html"):
            text = (folder / "report" / file).read_text()
            assert verdict in text and "Certainty" in text
        terminal = " ".join(printed(narrow(summary), width=160).split())
        assert re.search(
            r"floor \(probe\) on test: (beaten|not shown to be beaten|better than the front), ",
            terminal,
        )
        hypervolume = r"hypervolume on test: [\d.]+ \[[\d.]+, [\d.]+\], [\d.]+% \[[\d.]+%, [\d.]+%\] of the oracle's; "
        assert re.search(
            f"{hypervolume}intervals over queries, corrected for selection bias", terminal
        )


@pytest.mark.parametrize(
    ("bounds", "verdict"),
    [
        ((0.1, 0.2), "beaten"),
        ((-0.1, 0.2), "not shown to be beaten"),
        ((-0.2, -0.1), "better than the front"),
    ],
)
def test_the_floor_has_three_verdicts(
    bounds: tuple[float, float], verdict: str, tmp_path: Path
) -> None:
    summary = summary_of(made(tmp_path))
    for split, front in summary.uncertainty.items():
        floor = Floor(sum(bounds) / 2, Interval(*bounds))
        certainty = dataclasses.replace(
            summary.certainty, fronts={split: dataclasses.replace(front, floor=floor)}
        )
        changed = summarize(summary.results)
        vars(changed)["certainty"] = certainty
        (line,) = trust_lines(changed)
        assert line.startswith(f"floor (probe) on {split}: {verdict}, ")
        assert line.endswith("--point probe=1") == (verdict == "better than the front")


def test_a_run_without_query_scores_has_a_report_without_intervals(
    tmp_path: Path, run: object
) -> None:
    summary = write.write(tmp_path).summary
    assert (
        not summary.uncertainty
        and not certainty_table(summary).rows
        and not trust_sentences(summary)
    )
    markdown, page = (
        (tmp_path / "report" / name).read_text() for name in ("front.md", "report.html")
    )
    assert "Certainty" not in markdown and "Brackets" not in markdown
    assert 'id="certainty"' not in page and "Brackets" not in page


def test_a_split_with_missing_query_scores_has_no_intervals(tmp_path: Path) -> None:
    run = made(tmp_path)
    member = summarize(load(tmp_path)).members[0].dev
    (tmp_path / "scores" / "test" / f"trial-{member.trial:04d}-step-{member.step:03d}.npz").unlink()
    assert list(summary_of(run).uncertainty) == ["dev"]
    assert not summary_of(run).certainty.drops
    assert summary_of(run).certainty.compared_on == "dev"


def test_without_test_scores_statistics_are_on_dev(tmp_path: Path) -> None:
    summary = summary_of(made(tmp_path, test=False))
    assert list(summary.uncertainty) == ["dev"]
    assert "dev P minus knee's" in certainty_table(summary).columns
    assert any(sentence.startswith("On dev, the knee") for sentence in trust_sentences(summary))


@pytest.mark.parametrize("split", ["dev", "test"])
@pytest.mark.parametrize("damaged", [b"", b"{}", None], ids=["empty", "other", "cut off"])
def test_a_damaged_score_file_omits_the_intervals_of_its_split(
    tmp_path: Path, split: str, damaged: bytes | None
) -> None:
    made(tmp_path)
    file = next((tmp_path / "scores" / split).glob("trial-*.npz"))
    file.write_bytes(file.read_bytes()[:100] if damaged is None else damaged)
    summary = write.write(tmp_path).summary
    other = "test" if split == "dev" else "dev"
    assert list(summary.uncertainty) == [other]
    (text,) = (note for note in notes(summary) if str(file) in note)
    assert (
        text.startswith(f"The intervals on {split} are missing: {file}: is damaged: ")
        and "\n" not in text
    )
    for name in ("front.md", "report.html"):
        text = (tmp_path / "report" / name).read_text()
        assert file.name in text and f"intervals on {split} are missing" in text


def test_a_folder_instead_of_a_score_file_omits_its_intervals(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / "scores" / "test" / "odd.npz").mkdir()
    summary = summary_of(LocalFolder(tmp_path))
    assert list(summary.uncertainty) == ["dev"] and "odd.npz" in summary.damage["intervals on test"]


def test_a_damaged_readings_file_is_omitted(tmp_path: Path) -> None:
    run = made(tmp_path)
    write_readings(tmp_path, invented_readings(load(tmp_path)))
    write.write(run)
    assert 'id="readings"' in (tmp_path / "report" / "report.html").read_text()
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[: len(whole) // 2])
    summary = write.write(run).summary
    assert list(summary.uncertainty) == ["dev", "test"]
    (text,) = (note for note in notes(summary) if FILE in note)
    assert (
        text.startswith(f"The readings are missing: {tmp_path / FILE}: is damaged: ")
        and "\n" not in text
    )
    page = (tmp_path / "report" / "report.html").read_text()
    assert 'id="readings"' not in page and "The readings are missing" in page


def test_a_damaged_ledger_fails_the_report(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / "ledger.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match="line 1"):
        write.write(tmp_path)
    assert not (tmp_path / "report").exists()


def test_infeasible_points_do_not_count_for_areas(tmp_path: Path) -> None:
    constrained = dataclasses.replace(FEW, constraints={"polarity": 0.75})
    summary = summary_of(made(tmp_path, info=constrained))
    missing = {name_of_point(member.dev) for member in summary.members if not member.is_feasible}
    assert missing
    assert missing.isdisjoint(summary.uncertainty["test"].knee_region)
    unlimited = summary_of(made_in(tmp_path / "other"))
    one, other = summary.uncertainty["test"].hypervolume, unlimited.uncertainty["test"].hypervolume
    assert one is not None and other is not None and one.high < other.high


def made_in(folder: Path) -> LocalFolder:
    folder.mkdir()
    return made(folder)


def make_mean(step: int, polarity: Pair, similarity: Pair) -> Mean:
    """Return the mean over two runs of trial 0's plain point, with the mean and spread of P and S."""
    return Mean(
        0, step, "plain", None, 2, {"polarity": Score(*polarity), "similarity": Score(*similarity)}
    )


def test_repeated_configurations_have_intervals_over_seeds(tmp_path: Path) -> None:
    config = {"loss": "triplet", "learning_rate": 1e-5}
    write_ledger(
        tmp_path,
        [StoredTrial(config, "completed", "", [(0.80, 0.42)])],
        StoredSweep(info=FEW, finish=None),
    )
    ledger = Ledger(tmp_path)
    ledger.append(TrialStarted(trial=1, config=config, num_rungs=5, replicate_of=0))
    rung = {"trial": 1, "step": 1, "examples_seen": 2048, "seconds": 1.0, "loss": 0.1, "stop": None}
    ledger.append(RungFinished(**rung, points=(point(1, 1, 0.83, 0.41),)))  # type: ignore[arg-type]
    mean = make_mean(1, (0.815, 0.021), (0.415, 0.007))
    ledger.append(TrialEnded(trial=1, status=TrialStatus.COMPLETED, reason=""))
    ledger.append(ReplicatesAveraged(trial=0, runs=2, points=(mean,)))
    ledger.close()
    write_query_scores(tmp_path, load(tmp_path))
    summary = summary_of(LocalFolder(tmp_path))
    intervals = summary.certainty.replicated[0, 1, "plain", None]
    dev = load_query_scores(LocalFolder(tmp_path), load(tmp_path))["dev"]
    runs = dev.scores[dev.rows([(0, 1, "plain", None), (1, 1, "plain", None)]), 0]
    noise = of_runs([[runs]])
    assert noise is not None
    variance = of_queries(runs) + noise.seeds.over(2)
    expected = interval.around(float(runs.mean()), variance.value, variance.degrees)
    assert (intervals.polarity.low, intervals.polarity.high) == pytest.approx(
        (expected.low, expected.high)
    )
    assert intervals.polarity.half_width > interval.of_mean(runs.mean(axis=0)).half_width
    assert intervals.retention is not None
    table = mean_table(summary)
    assert table.columns[-3:] == ("P interval", "S interval", "retention interval")
    assert all(len(row) == len(table.columns) for row in table.rows) and len(table.rows) == 2


def test_rungs_of_one_configuration_share_their_seeds(tmp_path: Path) -> None:
    config = {"loss": "triplet", "learning_rate": 1e-5}
    rungs = [(0.80, 0.42), (0.84, 0.40)]
    write_ledger(
        tmp_path, [StoredTrial(config, "completed", "", rungs)], StoredSweep(info=FEW, finish=None)
    )
    ledger = Ledger(tmp_path)
    ledger.append(TrialStarted(trial=1, config=config, num_rungs=2, replicate_of=0))
    for step, scores in enumerate([(0.82, 0.41), (0.85, 0.39)], 1):
        rung = {
            "trial": 1,
            "step": step,
            "examples_seen": 2048 * step,
            "seconds": 1.0,
            "loss": 0.1,
            "stop": None,
        }
        ledger.append(RungFinished(**rung, points=(point(1, step, *scores),)))  # type: ignore[arg-type]
    ledger.append(TrialEnded(trial=1, status=TrialStatus.COMPLETED, reason=""))
    means = (
        make_mean(1, (0.81, 0.01), (0.415, 0.005)),
        make_mean(2, (0.845, 0.01), (0.395, 0.005)),
    )
    ledger.append(ReplicatesAveraged(trial=0, runs=2, points=means))
    ledger.close()
    write_query_scores(tmp_path, load(tmp_path))
    summary = summary_of(LocalFolder(tmp_path))
    dev = load_query_scores(LocalFolder(tmp_path), load(tmp_path))["dev"]
    runs = {
        step: dev.scores[dev.rows([(0, step, "plain", None), (1, step, "plain", None)]), 0]
        for step in (1, 2)
    }
    noise = of_runs([[runs[1], runs[2]]])
    assert noise is not None and noise.seeds.degrees == 1
    for step in (1, 2):
        variance = of_queries(runs[step]) + noise.seeds.over(2)
        expected = interval.around(float(runs[step].mean()), variance.value, variance.degrees)
        polarity = summary.certainty.replicated[0, step, "plain", None].polarity
        assert (polarity.low, polarity.high) == pytest.approx((expected.low, expected.high))


def with_replicates(folder: Path, *, replicate: bool = True) -> LocalFolder:
    """Write two trials with two rungs, a replicate of the first, and test scores of the front."""
    configs = [{"loss": "triplet", "learning_rate": rate} for rate in (1e-5, 3e-5)]
    rungs = [[(0.80, 0.42), (0.84, 0.40)], [(0.86, 0.36), (0.88, 0.33)]]
    trials = [
        StoredTrial(config, "completed", "", scores)
        for config, scores in zip(configs, rungs, strict=True)
    ]
    write_ledger(folder, trials, StoredSweep(info=FEW, finish=None))
    ledger = Ledger(folder)
    if replicate:
        ledger.append(TrialStarted(trial=2, config=configs[0], num_rungs=2, replicate_of=0))
        for step, scores in enumerate([(0.815, 0.425), (0.835, 0.39)], 1):
            rung = {
                "trial": 2,
                "step": step,
                "examples_seen": 2048 * step,
                "seconds": 1.0,
                "loss": 0.1,
                "stop": None,
            }
            ledger.append(RungFinished(**rung, points=(point(2, step, *scores),)))  # type: ignore[arg-type]
        ledger.append(TrialEnded(trial=2, status=TrialStatus.COMPLETED, reason=""))
    on_test = [
        dataclasses.replace(member, split="test") for member in front_points(load(folder).points)
    ]
    ledger.append(PointsScored(points=tuple(on_test)))
    reference = next(stored for stored in load(folder).points if stored.kind == "reference")
    ledger.append(PointsScored(points=(dataclasses.replace(reference, split="test"),)))
    ledger.close()
    write_query_scores(folder, load(folder))
    return LocalFolder(folder)


def test_areas_of_a_run_with_replicates_are_over_queries_and_seeds(tmp_path: Path) -> None:
    """The area is compared with explicit means, variances and the expected luck of a chosen run."""
    run = with_replicates(tmp_path)
    summary = summary_of(run)
    assert [(member.dev.trial, member.dev.step) for member in summary.members] == [
        (2, 1),
        (0, 2),
        (1, 1),
        (1, 2),
    ]
    assert {split: front.noise for split, front in summary.uncertainty.items()} == {
        "dev": "queries and seeds",
        "test": "queries and seeds",
    }
    scores = load_query_scores(run, summary.results)
    dev, test = scores["dev"], scores["test"]
    names = {step: [(trial, step, "plain", None) for trial in (0, 2)] for step in (1, 2)}
    noise = [
        of_runs([[stored[dev.rows(names[step])] for step in (1, 2)]])
        for stored in dev.scores.transpose(1, 0, 2)
    ]
    assert any(estimate is not None and estimate.reliability > 0.05 for estimate in noise)
    members = [name_of_point(member.dev) for member in summary.members]
    replicated, alone = StoredRuns(summary.results, dev).scored(members, test)
    assert (replicated.configuration.runs, replicated.runs) == (2, ((1,), (0,)))
    assert (alone.configuration.runs, alone.runs) == (1, ((0,), (0,)))
    expected = []
    for step, chosen in ((1, 1), (2, 0)):
        pair = []
        for stored, on_test, estimate in zip(
            dev.scores.transpose(1, 0, 2), test.scores.transpose(1, 0, 2), noise, strict=True
        ):
            assert estimate is not None
            means = stored[dev.rows(names[step])].mean(axis=1)
            luck = estimate.reliability * (means[chosen] - means.mean())
            pair.append(on_test[test.index(names[step][chosen])].mean() - luck)
        expected.append(pair)
    expected += [
        [member.dev["polarity"], member.dev["similarity"]] for member in summary.members[2:]
    ]
    reference = summary.references["test"]
    area = hypervolume(expected, (reference["polarity"], reference["similarity"] / 2))
    interval_of_area = summary.uncertainty["test"].hypervolume
    assert interval_of_area is not None
    without = summary_of(with_replicates_in(tmp_path / "without", replicate=False)).uncertainty[
        "test"
    ]
    assert without.noise == "queries" and without.hypervolume is not None
    assert interval_of_area.half_width > without.hypervolume.half_width
    middle = (interval_of_area.low + interval_of_area.high) / 2
    assert abs(middle - area) < 0.3 * interval_of_area.half_width, "but for the bias of an area"


def with_replicates_in(folder: Path, **others: bool) -> LocalFolder:
    folder.mkdir()
    return with_replicates(folder, **others)


def test_page_states_the_noise_of_intervals(tmp_path: Path) -> None:
    for name, replicate, noise in (
        ("with", True, "queries and seeds"),
        ("without", False, "queries"),
    ):
        run = with_replicates_in(tmp_path / name, replicate=replicate)
        summary = write.write(run).summary
        terminal = " ".join(printed(narrow(summary), width=160).split())
        assert f"; intervals over {noise}, corrected" in terminal
        for file in ("front.md", "report.html"):
            text = (tmp_path / name / "report" / file).read_text()
            assert f"90% intervals over {noise} for the values" in text
            assert ("do not account for training seeds" in text) != replicate


def test_a_configuration_with_a_missing_replicate_counts_as_one_run(tmp_path: Path) -> None:
    run = with_replicates(tmp_path)
    (tmp_path / "scores" / "dev" / "trial-0000-step-001.npz").unlink()
    dev = load_query_scores(run, load(tmp_path))["dev"]
    stored = StoredRuns(load(tmp_path), dev)
    alone, together, other = stored.scored(
        [
            (2, 1, "plain", None),
            (2, 2, "plain", None),
            (0, 2, "plain", None),
            (1, 2, "plain", None),
        ],
        dev,
    )
    assert (alone.configuration.runs, together.configuration.runs, other.configuration.runs) == (
        1,
        2,
        1,
    )
    assert together.runs == ((0, 1),) and len(together.scores) == 1, "two runs of one point are one"
    assert [len(configuration.keys) for configuration in stored.replicated()] == [1]
