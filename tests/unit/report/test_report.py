"""The report, from synthetic ledgers: its numbers against brute force, its page against what a browser would fetch."""

import contextlib
import dataclasses
import html.parser
import io
import json
import math
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from raysweep.errors import InputError
from raysweep.metrics.objective import Objective
from raysweep.metrics.pareto import hypervolume
from raysweep.report import figures, tables, terminal, write
from raysweep.report.notes import notes
from raysweep.report.statuses import STATUS_STYLES, with_sign
from raysweep.report.summary import half_width, summarise
from raysweep.report.tables import describe, front_table, varied_parameters
from raysweep.results.account import sentence
from raysweep.results.ledger import Ledger
from raysweep.results.reader import load
from raysweep.results.types import Point, Rung, RunInfo
from raysweep.sweep.resume import Resumed

INFO = RunInfo(
    name="night-run",
    version="0.1.0",
    dataset="reviews.csv",
    model="all-MiniLM-L6-v2",
    reference="all-MiniLM-L6-v2",
    k=16,
    rank_weights="uniform",
    polarity_weight=0.5,
    similarity="similarity",
    num_trials=8,
    num_queries={"dev": 900, "test": 400},
    num_pool={"dev": 4500, "test": 2000},
    label_names=("negative", "positive"),
    seed=7,
)
REFERENCE = {"dev": (0.63, 0.47), "test": (0.62, 0.46)}
LOSSES = ("triplet", "contrastive", "online_contrastive", "multiple_negatives")


def point(trial, step, polarity, similarity, *, split="dev", kind="plain", value=None):
    width = None if kind == "oracle" else 384
    retention = similarity / REFERENCE[split][1]
    return Point(trial, step, kind, value, split, width, polarity, 0.25, similarity, 0.08, retention)


def cost_of(number, rungs, gpus, price):
    """Of a trial of 2 CPUs, whose rungs take from 10 to 16 seconds; its price is of an hour."""
    seconds = (10 + number % 7) * rungs
    return {
        "seconds": seconds,
        "cpu_seconds": 2 * seconds,
        "gpu_seconds": gpus * seconds,
        "money": price * seconds / 3600,
    }


def write_ledger(
    folder,
    trials,
    *,
    info=INFO,
    reference=True,
    oracle=True,
    test_of=(),
    finish=("completed", ""),
    gpus=0.5,
    price=3.0,
):
    """``trials``: (config, status, reason, [(polarity, similarity) of each rung]); ``test_of``: points to test."""
    ledger = Ledger(folder)
    ledger.append("run", **dataclasses.asdict(info))
    splits = ("dev", "test") if test_of else ("dev",)
    for split in splits:
        p, s = REFERENCE[split]
        found = [point(None, None, p, s, kind="reference", split=split)] if reference else []
        for bonus in (0.0, 0.1, 0.2, 0.4, 1.0, 2.0) if oracle else ():
            share = 1 - math.exp(-8 * bonus)
            found.append(
                point(None, None, p + (1 - p) * share, s - 0.02 * share**2, kind="oracle", value=bonus, split=split)
            )
        ledger.append("points", points=[dataclasses.asdict(each) for each in found])
    for number, (config, status, reason, scores) in enumerate(trials):
        ledger.append("trial", trial=number, config=config, num_rungs=5)
        for step, (p, s) in enumerate(scores, 1):
            rung = dataclasses.asdict(Rung(number, step, 1024 * 2**step, 10.0 * step, 0.1))
            points = [dataclasses.asdict(point(number, step, p, s))]
            ledger.append("rung", **rung, points=points, cost=cost_of(number, step, gpus, price))
        if status != "running":
            event = {"held": "hold", "interrupted": "cut"}.get(status, "end")
            cost = cost_of(number, len(scores) + 0.1, gpus, price)
            ledger.append(
                event, trial=number, **({"status": status} if event == "end" else {}), reason=reason, cost=cost
            )
    tested = [
        dataclasses.replace(each, split="test", polarity=each.polarity - 0.02, similarity=each.similarity - 0.01)
        for each in test_of
    ]
    if tested:
        ledger.append("points", points=[dataclasses.asdict(each) for each in tested])
    if finish:
        ledger.append("finish", status=finish[0], reason=finish[1], seconds=321.0)
    ledger.close()


def random_trials(num_trials, seed=0):
    rng = np.random.default_rng(seed)
    trials = []
    for number in range(num_trials):
        loss = LOSSES[number % len(LOSSES)]
        config = {"loss": loss, "learning_rate": float(10 ** rng.uniform(-6, -4)), "batch_size": 64, "freezing": "none"}
        if loss == "triplet":
            config["margin"] = float(rng.uniform(0.01, 1))
        if number % 11 == 5:
            trials.append((config, "failed", "the loss was not finite at step 12", []))
            continue
        num_rungs = int(rng.integers(1, 6))
        strength = rng.uniform(0.2, 1)
        gain = 1 - np.exp(-strength * np.arange(1, num_rungs + 1))
        polarity = 0.63 + 0.27 * gain + rng.normal(0, 0.006, num_rungs)
        similarity = 0.47 - 0.25 * rng.uniform(0.3, 1.0) * gain**2 + rng.normal(0, 0.004, num_rungs)
        status, reason = ("completed", "") if num_rungs == 5 else ("stopped", f"below the top half at step {num_rungs}")
        trials.append(
            (config, status, reason, [(float(p), float(s)) for p, s in zip(polarity, similarity, strict=True)])
        )
    return trials


def dev_front(trials):
    """The non-dominated points of all rungs, by falling similarity, found pair by pair."""
    points = [point(n, step, p, s) for n, (*_, scores) in enumerate(trials) for step, (p, s) in enumerate(scores, 1)]
    front = [
        a
        for a in points
        if not any(
            b.polarity >= a.polarity
            and b.similarity >= a.similarity
            and (b.polarity, b.similarity) != (a.polarity, a.similarity)
            for b in points
        )
    ]
    return sorted(front, key=lambda each: -each.similarity)


REAL_FIGURES = (figures.front_figure, figures.progress_figure)


@pytest.fixture(autouse=True)
def quick_figures(monkeypatch):
    """Drawing takes most of a report's time, and one test draws."""
    monkeypatch.setattr(figures, "front_figure", lambda _: b"front")
    monkeypatch.setattr(figures, "progress_figure", lambda _: b"progress")


@pytest.fixture
def run(tmp_path):
    trials = random_trials(14)
    write_ledger(tmp_path, trials, test_of=dev_front(trials))
    return tmp_path, trials


def test_front_json_is_the_front_on_dev_and_then_on_test(run):
    folder, trials = run
    front = dev_front(trials)
    assert len(front) >= 3
    expected = []
    for split in ("dev", "test"):
        for each in front:
            p, s = each.polarity, each.similarity
            p, s = (p - 0.02, s - 0.01) if split == "test" else (p, s)
            expected.append(
                {
                    "trial": each.trial,
                    "step": each.step,
                    "kind": "plain",
                    "value": None,
                    "split": split,
                    "polarity": round(100 * p, 4),
                    "similarity": round(100 * s, 4),
                    "retention": round(100 * each.retention, 4),
                }
            )
    written = write.write(folder)
    assert json.loads((folder / "report" / "front.json").read_text()) == expected
    assert {path.name for path in (folder / "report").iterdir()} == {path.name for path in written.files}


def test_tables_hold_every_row_of_the_ledger(run):
    folder, trials = run
    write.write(folder)
    results = load(folder)
    rows = json.loads((folder / "report" / "points.json").read_text())
    assert pq.read_table(folder / "report" / "points.parquet").to_pylist() == rows
    assert [(row["trial"], row["kind"], row["split"], row["polarity"]) for row in rows] == [
        (each.trial, each.kind, each.split, round(100 * each.polarity, 4)) for each in results.points
    ]
    rungs = pq.read_table(folder / "report" / "rungs.parquet").to_pylist()
    assert rungs == [dataclasses.asdict(rung) for rung in results.rungs]
    written = pq.read_table(folder / "report" / "trials.parquet").to_pylist()
    assert [json.loads(row["config"]) for row in written] == [config for config, *_ in trials]
    assert [row["status"] for row in written] == [status for _, status, *_ in trials]


def test_hypervolume_is_above_the_stated_point_of_each_split(run):
    folder, _ = run
    summary = write.write(folder).summary
    grid = np.stack(np.meshgrid(np.arange(0.0005, 1, 0.001), np.arange(0.0005, 1, 0.001)), axis=-1)
    for split in ("dev", "test"):
        area = summary.areas[split]
        reference_point = (REFERENCE[split][0], REFERENCE[split][1] / 2)
        assert area.reference_point == reference_point
        for points, found in (
            ([m.on(split) for m in summary.members], area.front),
            (summary.oracles[split], area.oracle),
        ):
            dominated = np.zeros(grid.shape[:2], dtype=bool)
            for each in points:
                dominated |= (grid < (each.polarity, each.similarity)).all(axis=-1)
            assert found == pytest.approx((dominated & (grid > reference_point).all(axis=-1)).sum() * 1e-6, abs=1e-3)
        assert area.share == pytest.approx(area.front / area.oracle)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("similarity", ["similarity", "retention"])
def test_best_point_is_the_best_of_all_points(tmp_path, weight, similarity):
    info = dataclasses.replace(INFO, polarity_weight=weight, similarity=similarity)
    write_ledger(tmp_path, random_trials(20), info=info)
    summary = summarise(load(tmp_path))
    everything = [each for each in summary.results.points if each.trial is not None]

    def score(each):
        return weight * each.polarity + (1 - weight) * getattr(each, similarity)

    best = [member.dev for member in summary.members if member.is_best]
    assert len(best) == 1
    assert score(best[0]) == max(map(score, everything)) == info.objective(best[0])
    assert max(max(each.objectives) for each in summary.trials if each.objectives) == score(best[0])
    assert sum(member.is_knee for member in summary.members) == 1


def test_intervals_cover_the_mean_19_times_in_20():
    rng = np.random.default_rng(0)
    samples = rng.uniform(size=(4000, 200))
    widths = [half_width(row.std(), 200) for row in samples]
    assert np.mean(np.abs(samples.mean(axis=1) - 0.5) <= widths) == pytest.approx(0.95, abs=0.015)


class Page(html.parser.HTMLParser):
    """Collects what a browser would load, run and show."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.shown, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href", "srcset", "data", "action")]
        self.links += [value for name, value in attributes if name.startswith("on") or name == "style"]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.shown.append(data)


def read_page(folder):
    text = (folder / "report" / "report.html").read_text()
    page = Page(text)
    assert not page.open
    return text, page


def test_page_needs_nothing_else(run):
    folder, _ = run
    write.write(folder)
    text, page = read_page(folder)
    assert page.links and all(link.startswith("data:image/png;base64,") for link in page.links)
    assert not {"script", "link", "iframe", "object", "embed", "base"} & set(page.tags)
    assert not re.search(r"https?://|url\(|@import", text)
    assert "prefers-color-scheme: dark" in text


def test_text_of_the_run_is_escaped_everywhere(tmp_path):
    evil = '<script>alert("x")</script>|&amp;'
    names = dict.fromkeys(("name", "dataset", "model", "reference", "rank_weights", "version"), evil)
    info = dataclasses.replace(INFO, **names, label_names=(evil, "b"))
    trials = [
        ({"loss": evil, "freezing": evil, evil: 1}, "failed", evil, [(0.7, 0.4)]),
        ({"loss": "b"}, "completed", "", []),
    ]
    write_ledger(tmp_path, trials, info=info, finish=("interrupted", evil))
    summary = write.write(tmp_path).summary
    text, page = read_page(tmp_path)
    assert "script" not in page.tags and "<script" not in text
    assert any(evil in shown for shown in page.shown)
    tables = [line for line in (tmp_path / "report" / "front.md").read_text().splitlines() if line.startswith("|")]
    assert "<script>" not in "\n".join(tables).replace("\\<script\\>", "")
    separators = [len(re.findall(r"(?<!\\)\|", line)) for line in tables]
    assert set(separators) == {len(front_table(summary).columns) + 1, 8, 10, 3, 11}
    assert evil.split("|")[0] in rendered(summary).replace("\n", "")


def rendered(summary, width=400):
    rich_console = pytest.importorskip("rich.console")
    console = rich_console.Console(file=io.StringIO(), width=width)
    console.print(terminal.terminal_table(summary))
    return console.file.getvalue()


def test_terminal_table_fits_80_columns_and_shows_scores_whole(run):
    folder, _ = run
    summary = summarise(load(folder))
    text = rendered(summary, width=80)
    assert max(map(len, text.splitlines())) <= 80
    for member in summary.members:
        for each in (member.dev, member.test):
            assert f"{100 * each.polarity:.1f}" in text and f"{100 * each.similarity:.1f}" in text
    assert "R on dev: P 63.0, S 47.0" in text and "knee" in text


def test_interrupted_sweep_says_that_test_was_not_scored(tmp_path):
    trials = [(*each[:1], "interrupted", "Ctrl-C", each[3]) for each in random_trials(5)]
    write_ledger(tmp_path, trials, finish=("interrupted", "Ctrl-C"))
    summary = write.write(tmp_path).summary
    assert summary.members and not summary.has_test and set(summary.areas) == {"dev"}
    for name in ("report.html", "front.md"):
        text = (tmp_path / "report" / name).read_text()
        assert "The sweep was interrupted: Ctrl-C." in text and "test split was not scored" in text
    assert {row["split"] for row in json.loads((tmp_path / "report" / "front.json").read_text())} == {"dev"}


def test_ledger_cut_inside_its_last_line_reports_what_came_before(tmp_path):
    write_ledger(tmp_path, random_trials(5), finish=None)
    before = summarise(load(tmp_path))
    with (tmp_path / "ledger.jsonl").open("a") as ledger:
        ledger.write('{"event": "rung", "trial": 3, "st')
    summary = write.write(tmp_path).summary
    assert summary.members == before.members
    assert any("killed" in note for note in notes(summary))


@pytest.mark.parametrize(
    ("event", "key", "value", "said"),
    [
        ("rung", "points.0.polarity", "abc", "polarity is 'abc'"),
        ("rung", "points.0.polarity", math.nan, "polarity nan, not a finite number"),
        ("rung", "points.0.polarity", 7, "beyond their ranges"),
        ("rung", "points", None, "there is no 'points'"),
        ("rung", "trial", 99, "trial 99 has not begun"),
        ("rung", "event", "holdd", "there is no event 'holdd'"),
        ("run", "k", "x", "k is 'x'"),
        ("end", "trial", 99, "trial 99 has not begun"),
    ],
)
def test_a_ledger_that_does_not_fit_is_refused_with_its_line(run, event, key, value, said):
    folder, _ = run
    path = folder / "ledger.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    number = next(i for i, line in enumerate(lines) if line["event"] == event)
    *way, last = key.split(".")
    holder = lines[number]
    for step in way:
        holder = holder[int(step) if step.isdigit() else step]
    if value is None:
        del holder[last]
    else:
        holder[last] = value
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(InputError, match=re.escape(f"{path}: line {number + 1}: ") + ".*" + re.escape(said)):
        load(folder)


def test_whatever_is_wrong_with_a_ledger_is_said_or_harmless(run):
    folder, _ = run
    path = folder / "ledger.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    seen = {line["event"]: number for number, line in enumerate(lines)}
    for number in seen.values():
        for key in lines[number]:
            for value in (None, "x", -7, [], {}, math.inf):
                changed = [*lines[:number], {**lines[number], key: value}, *lines[number + 1 :]]
                path.write_text("".join(json.dumps(line) + "\n" for line in changed))
                with contextlib.suppress(InputError):
                    load(folder)


def test_a_run_with_a_trial_that_is_no_configuration_is_not_resumed(run):
    folder, _ = run
    path = folder / "ledger.jsonl"
    path.write_text(re.sub(r'"learning_rate": [-0-9.e]+', '"learning_rate": "abc"', path.read_text()))
    for name in ("config.yaml", "prepared.json"):
        (folder / name).touch()
    with pytest.raises(InputError, match=re.escape(f"{path}: trial 0: learning_rate: ")):
        Resumed(folder)


def test_no_finished_rung_is_said_and_leaves_valid_empty_files(tmp_path):
    write_ledger(tmp_path, [({"loss": "triplet"}, "failed", "out of memory", [])], finish=("completed", ""))
    summary = write.write(tmp_path).summary
    assert "No rung finished, so there is no front." in notes(summary)
    assert any("1 of 1 trials failed" in note for note in notes(summary))
    assert json.loads((tmp_path / "report" / "front.json").read_text()) == []
    assert pq.read_table(tmp_path / "report" / "rungs.parquet").num_rows == 0
    assert "No rung finished" in (tmp_path / "report" / "report.html").read_text()
    assert "out of memory" in (tmp_path / "report" / "front.md").read_text()


def test_sweep_without_any_trial_reports(tmp_path):
    write_ledger(tmp_path, [], reference=False, oracle=False, finish=None)
    summary = write.write(tmp_path).summary
    assert "No trial was proposed." in (tmp_path / "report" / "report.html").read_text()
    assert "Front of night-run" in rendered(summary)


def test_single_point_without_reference_and_oracle(tmp_path):
    write_ledger(tmp_path, [({"loss": "triplet"}, "completed", "", [(0.8, 0.4)])], reference=False, oracle=False)
    summary = write.write(tmp_path).summary
    (member,) = summary.members
    assert member.is_knee and member.is_best and not summary.areas
    text = " ".join(notes(summary))
    assert "no hypervolume on dev" in text and "oracle front on dev is not stored" in text


@pytest.mark.parametrize("case", ["usual", "single point", "no rung"])
def test_figures_are_wide_pngs(tmp_path, case):
    trials = random_trials(14)
    if case == "usual":
        write_ledger(tmp_path, trials, test_of=dev_front(trials))
    else:
        scores = [(0.8, 0.4)] if case == "single point" else []
        write_ledger(tmp_path, [({}, "interrupted", "", scores)], reference=False, oracle=False)
    summary = summarise(load(tmp_path))
    for draw in REAL_FIGURES:
        png = draw(summary)
        assert png[:8] == b"\x89PNG\r\n\x1a\n"
        assert int.from_bytes(png[16:20], "big") >= 1500
    assert "matplotlib.pyplot" not in sys.modules


def test_a_thousand_trials_fold_their_table(tmp_path):
    trials = random_trials(1200)
    write_ledger(tmp_path, trials, test_of=dev_front(trials[:20]))
    write.write(tmp_path)
    text, page = read_page(tmp_path)
    assert "<details>" in text and "<details open>" not in text
    assert page.tags.count("tr") > 1200


def test_report_overwrites_an_earlier_one_and_a_failing_one_leaves_it(run, monkeypatch):
    folder, trials = run
    write.write(folder)
    write.write(folder)
    before = {path.name: path.read_bytes() for path in (folder / "report").iterdir()}
    shutil.copy(folder / "ledger.jsonl", folder / "kept.jsonl")
    (folder / "ledger.jsonl").unlink()
    write_ledger(folder, trials[:4])

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(Path, "replace", fail)
        with pytest.raises(InputError, match="No space left"):
            write.write(folder)
    assert {path.name: path.read_bytes() for path in (folder / "report").iterdir()} == before
    write.write(folder)
    assert json.loads(before["front.json"]) != json.loads((folder / "report" / "front.json").read_text())


def test_folder_that_cannot_be_written_or_holds_no_run_is_a_clear_error(run, tmp_path_factory):
    folder, _ = run
    (folder / "report").write_text("in the way")
    with pytest.raises(InputError, match=r"report: cannot write the report"):
        write.write(folder)
    assert (folder / "report").read_text() == "in the way"
    with pytest.raises(InputError, match="not a run folder"):
        write.write(tmp_path_factory.mktemp("empty"))


def test_configurations_show_what_differs_the_main_parameters_first(tmp_path):
    configs = [
        {"weight_decay": 0.01, "learning_rate": 3e-5, "loss": "triplet", "margin": 0.1, "batch_size": 64},
        {"weight_decay": 0.02, "learning_rate": 3e-5, "loss": "multiple_negatives", "margin": None, "batch_size": 64},
    ]
    write_ledger(tmp_path, [(config, "completed", "", [(0.8, 0.4)]) for config in configs])
    names = varied_parameters(load(tmp_path).trials)
    assert names == ("loss", "margin", "weight_decay")
    assert describe(configs[0], names) == "triplet, margin 0.1, weight_decay 0.01"
    assert describe(configs[1], names) == "multiple_negatives, weight_decay 0.02"
    assert varied_parameters(load(tmp_path).trials[:1]) == ("loss", "margin", "learning_rate", "batch_size")


def of_every_status(num_trials=40):
    """Random trials, of which some are held and some are cut off."""
    trials = []
    for number, (config, status, reason, scores) in enumerate(random_trials(num_trials)):
        status = {1: "held", 2: "interrupted", 3: "running"}.get(number % 5, status) if status == "stopped" else status
        trials.append((config, status, reason, scores))
    return trials


@pytest.mark.parametrize(("gpus", "price"), [(0.5, 3.0), (0.0, 0.0)])
def test_costs_are_those_of_the_ledger_and_add_up(tmp_path, gpus, price):
    trials = of_every_status()
    write_ledger(tmp_path, trials, gpus=gpus, price=price, finish=None)
    stored = {}  # each trial's last word
    for event in map(json.loads, (tmp_path / "ledger.jsonl").read_text().splitlines()):
        if "cost" in event:
            stored[event["trial"]] = event["cost"]
    summary = write.write(tmp_path).summary
    *rows, total = json.loads((tmp_path / "report" / "costs.json").read_text())
    assert {row["kind"] for row in rows} == {status for _, status, *_ in trials} >= {"held", "interrupted", "running"}
    for row in (*rows, total):
        of_kind = [number for number, (_, status, *_) in enumerate(trials) if row["kind"] in (status, "all")]
        assert row["num_trials"] == len(of_kind)
        assert row["num_rungs"] == sum(len(trials[number][3]) for number in of_kind)
        for name in ("seconds", "cpu_seconds", "gpu_seconds", *(["money"] if price else [])):
            assert row[name] == pytest.approx(math.fsum(stored[number][name] for number in of_kind))
        assert price or row["money"] is None
        saved = 0.0
        for number in of_kind:
            done = len(trials[number][3])
            if done and trials[number][1] == "stopped":
                saved += stored[number]["seconds"] / done * (5 - done)
        assert row["saved_seconds"] == pytest.approx(saved)
    assert total["saved_seconds"] > 0
    written = pq.read_table(tmp_path / "report" / "trials.parquet").to_pylist()
    assert [{name: row[name] for name in stored[0]} for row in written] == list(stored.values())
    found = tables.trial_table(summary)
    shown = [row[found.columns.index("seconds")] for row in found.rows]
    assert shown == [f"{cost['seconds']:,.0f}" for cost in stored.values()]
    for name in ("front.md", "report.html"):
        text = (tmp_path / "report" / name).read_text()
        assert sentence(summary.account) in text
        assert ("GPU-hours" in text, "money" in text) == (gpus > 0, price > 0)
        assert f"{total['seconds']:,.0f}" in text and f"{total['saved_seconds']:,.0f}" in text


def test_every_status_has_a_sign_of_its_own(tmp_path):
    trials = of_every_status()
    write_ledger(tmp_path, trials, finish=("budget", "the budget's 1 minutes are spent"))
    summary = write.write(tmp_path).summary
    signs = [{with_sign(status), STATUS_STYLES[status].marker} for _, status, *_ in trials]
    assert len(set(map(frozenset, signs))) == len({status for _, status, *_ in trials}) == 6
    held = sum(status == "held" for _, status, *_ in trials)
    for name in ("front.md", "report.html"):
        text = (tmp_path / "report" / name).read_text().replace("\N{NO-BREAK SPACE}", " ")
        assert f"{held} of 40 trials are held: raysweep run --resume may go on with them." in text
        assert text.count("■ held") == held + 1  # and once among the costs
    assert summary.account.of("held").num_trials == held


@pytest.mark.parametrize("similarity", ["similarity", "retention"])
@pytest.mark.parametrize("least", [{"retention": 0.8}, {"polarity": 0.75, "similarity": 0.3}])
def test_what_misses_a_constraint_is_marked_and_counts_as_for_the_sweep(tmp_path, least, similarity):
    info = dataclasses.replace(INFO, constraints=least, similarity=similarity)
    trials = random_trials(20)
    write_ledger(tmp_path, trials, info=info, test_of=dev_front(trials))
    summary = write.write(tmp_path).summary
    objective = Objective.of(0.5, similarity, least, REFERENCE["dev"])
    points = [p for p in summary.results.points if p.trial is not None and p.split == "dev"]
    pairs = [(p.polarity, p.similarity) for p in points]
    members = {(m.dev.polarity, m.dev.similarity): m for m in summary.members}
    assert 0 < sum(m.is_feasible for m in summary.members) < len(dev_front(trials)) == len(members)
    for pair, member in members.items():
        assert member.is_feasible == all(getattr(member.dev, name) >= value for name, value in least.items())
        assert member.is_best == (pair == objective.best_point(pairs))
        assert member.is_feasible or not member.is_knee
    assert summary.areas["dev"].front == pytest.approx(objective.area(pairs))
    limit = [(p.polarity, p.similarity) for p in summary.oracles["dev"]]
    assert summary.areas["dev"].oracle == pytest.approx(objective.area(limit))
    kept = [(m.test.polarity, m.test.similarity) for m in summary.members if m.is_feasible]
    assert summary.areas["test"].front == pytest.approx(
        hypervolume(kept, summary.objectives_by_split["test"].reference_point)
    )
    for each in summary.trials:
        own = [(p.polarity, p.similarity) for p in points if p.trial == each.trial.trial]
        if own:
            assert (each.best.polarity, each.best.similarity) == objective.best_point(own)
            assert each.objective == pytest.approx(objective.weighted_sum(objective.best_point(own)))
            assert each.is_feasible == (objective.best_value(own) >= 0)
    texts = {
        "retention": "Constraints: retention ≥ 80.0.",
        "polarity": "Constraints: P ≥ 75.0, S ≥ 30.0.",
    }
    for name in ("front.md", "report.html"):
        text = (tmp_path / "report" / name).read_text()
        assert texts[next(iter(least))] in text.split("Front</h2>" if name == "report.html" else "## Front")[0]
        assert "front members miss a constraint" in text
    marks = [row[0] for row in front_table(summary).rows]
    assert [tables.MISSES in mark for mark in marks] == [not member.is_feasible for member in summary.members]


def test_where_no_point_meets_the_constraints_the_best_misses_by_least(tmp_path):
    info = dataclasses.replace(INFO, constraints={"polarity": 0.95})
    write_ledger(tmp_path, random_trials(10), info=info)
    summary = write.write(tmp_path).summary
    (best,) = [member for member in summary.members if member.is_best]
    assert best.dev.polarity == max(member.dev.polarity for member in summary.members)
    assert sum(member.is_knee for member in summary.members) == 1
    assert summary.areas["dev"].front == 0
    assert any(note.startswith("No point meets the constraints (P ≥ 95.0)") for note in notes(summary))
    assert "misses" in rendered(summary, width=80) and "P ≥ 95.0" in rendered(summary, width=80)
