"""The HTML page of a report: markup, data, content security policy and embedded assets."""

import base64
import dataclasses
import hashlib
import html.parser
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.output import escape_controls, escape_html
from raysweep.report import write
from raysweep.report.importance import Share
from raysweep.report.page.data import reading_values
from raysweep.report.page.document import (
    COMPARISON_SCRIPTS,
    REPORT_SCRIPTS,
    Assets,
    asset_folder,
    embedded_json,
)
from raysweep.report.page.members import member_table
from raysweep.report.page.origin import Origin, hide_places
from raysweep.report.page.points import MAX_POINTS, ShownPoints
from raysweep.report.page.sections import importance_table, steps
from raysweep.report.page.trials import parameters
from raysweep.report.summary import summarize
from raysweep.report.texts import scores_text
from raysweep.results.events import GuardsMeasured
from raysweep.results.ledger import Ledger
from raysweep.results.query_scores import name_of_point
from raysweep.results.reader import load
from raysweep.results.readings import REFERENCE
from raysweep.results.types import GuardScore
from raysweep.storage.folder import LocalFolder
from raysweep.uncertainty.interval import Interval
from support.ledgers import (
    INFO,
    MARKUP,
    StoredSweep,
    StoredTrial,
    change_settings,
    dev_front,
    random_trials,
    write_ledger,
    write_run_with_markup,
)
from support.query_scores import invented_readings, write_readings


class Page(html.parser.HTMLParser):
    """Collects the links, scripts and texts of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.shown, self.open = [], [], [], []
        self.handlers, self.scripts, self.ids, self.names = [], [], [], []
        self.policy = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        values = dict(attributes)
        self.links += [
            value
            for name, value in attributes
            if name in ("src", "href", "srcset", "data", "action")
        ]
        self.handlers += [
            value for name, value in attributes if name.startswith("on") or name == "style"
        ]
        self.ids += [value for name, value in attributes if name == "id"]
        self.names += [value for name, value in attributes if name == "aria-labelledby"]
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"]
        if tag == "script":
            self.scripts.append((values.get("type"), ""))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            kind, text = self.scripts.pop()
            self.scripts.append((kind, text + data))
        elif self.open and self.open[-1] != "style":
            self.shown.append(data)

    @property
    def data(self):
        (text,) = [text for kind, text in self.scripts if kind == "application/json"]
        return json.loads(text)


def read_page(folder):
    text = (folder / "report" / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not page.open
    return text, page


def test_page_is_self_contained_and_its_policy_blocks_requests(run):
    write.write(run.folder)
    text, page = read_page(run.folder)
    assert page.links and all(link.startswith("data:image/png;base64,") for link in page.links)
    assert not {"link", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert page.handlers == []
    assert not re.search(r"url\(|@import", text.split("</style>")[0])
    assert "prefers-color-scheme: dark" in text and text.count("<noscript>") == 2
    assert page.policy.startswith("default-src 'none'; ")
    for kind, script in page.scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert kind == "application/json" or f"'sha256-{digest}'" in page.policy
    assert "unsafe" not in page.policy and "http" not in page.policy
    assert len(page.ids) == len(set(page.ids)) and set(page.names) <= set(page.ids)


def test_vendored_library_has_recorded_checksum():
    vendor = asset_folder() / "vendor"
    lines = (vendor / "checksums.txt").read_text(encoding="utf-8").splitlines()
    recorded = {
        name: digest
        for digest, name in (line.split() for line in lines if not line.startswith("#"))
    }
    checksums = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in vendor.iterdir()
    }
    del checksums["checksums.txt"]
    assert checksums == recorded
    assert {"echarts.min.js", "LICENSE", "NOTICE"} <= set(checksums)
    assert "Apache License" in (vendor / "LICENSE").read_text(encoding="utf-8")


def test_all_scripts_are_part_of_a_page():
    own = {
        file.name.removesuffix(".js")
        for file in asset_folder().iterdir()
        if file.name.endswith(".js")
    }
    assert own == set(REPORT_SCRIPTS) | set(COMPARISON_SCRIPTS)


@pytest.mark.parametrize("scripts", [REPORT_SCRIPTS, COMPARISON_SCRIPTS])
def test_scripts_are_embedded_safely(scripts):
    assets = Assets.read(scripts)
    for content in (assets.library, assets.script):
        assert not re.search(r"</script|<!--|<script", content, re.IGNORECASE)
    assert "innerHTML" not in assets.script and "eval(" not in assets.script
    assert "</style" not in assets.style and "http" not in assets.style


def test_text_of_the_run_is_escaped(tmp_path):
    write_run_with_markup(tmp_path)
    write.write(tmp_path)
    text, page = read_page(tmp_path)
    assert page.tags.count("script") == 3 and "<script>alert" not in text
    assert any(MARKUP in shown for shown in page.shown)
    assert page.data["run"]["name"] == MARKUP


ANY_TEXT = st.text(st.characters(codec=None), max_size=40)


@given(ANY_TEXT)
def test_embedded_json_keeps_text_without_markup(text):
    embedded = embedded_json({"text": text})
    assert json.loads(embedded) == {"text": text}
    assert embedded.isascii() and not set(embedded) & set("<>&\n")


def test_sweep_without_trials_has_a_page(tmp_path):
    write_ledger(tmp_path, [], StoredSweep(reference=False, oracle=False, finish=None))
    write.write(tmp_path)
    text, page = read_page(tmp_path)
    assert "No trials were proposed." in text and "No rungs have finished" in text
    # it was killed
    assert page.data["trials"] == page.data["members"] == [] and not page.data["isRunning"]


def test_page_is_marked_as_running_while_a_driver_holds_the_ledger(tmp_path):
    write_ledger(tmp_path, [], StoredSweep(reference=False, oracle=False, finish=None))
    ledger = Ledger(tmp_path)
    ledger.open()
    write.write(tmp_path)
    _, page = read_page(tmp_path)
    ledger.close()
    assert page.data["isRunning"]


def test_page_data_equal_the_summary(run):
    summary = write.write(run.folder).summary
    _, page = read_page(run.folder)
    data = page.data
    points = data["points"]
    stored = [
        point
        for point in summary.results.points
        if point.split == "dev" and point.trial is not None
    ]
    assert points["stored"] == len(points["trial"]) == len(stored)
    assert points["p"] == [round(100 * point["polarity"], 3) for point in stored]
    for member, shown in zip(summary.members, data["members"], strict=True):
        place = shown["point"]
        assert (points["trial"][place], points["step"][place]) == (
            member.dev.trial,
            member.dev.step,
        )
        assert shown["test"]["p"] == round(100 * member.test["polarity"], 3)
        assert (
            shown["command"].endswith(f"--point {member.dev.name}")
            and run.folder.name in shown["command"]
        )
        assert shown["intervals"] == {"dev": {}, "test": {}}  # without scores of each query
    for trial, shown in zip(summary.trials, data["trials"], strict=True):
        assert [rung[0] for rung in shown["rungs"]] == [rung.examples_seen for rung in trial.rungs]
        assert [rung[1] for rung in shown["rungs"]] == [
            round(100 * value, 3) for value in trial.objectives
        ]


def test_sampled_points_include_the_front_and_best_of_each_trial(tmp_path, monkeypatch):
    trials = random_trials(60)
    write_ledger(tmp_path, trials)
    monkeypatch.setattr("raysweep.report.page.points.MAX_POINTS", 80)
    summary = summarize(load(tmp_path))
    shown = ShownPoints.of(summary)
    assert MAX_POINTS > 80
    assert 70 <= len(shown.points) <= 80 < shown.num_stored
    assert {member.dev for member in summary.members} <= set(shown.points)
    assert {trial.best for trial in summary.trials if trial.best} <= set(shown.points)
    assert list(shown.points) == sorted(shown.points, key=lambda point: (point.trial, point.step))


def test_page_of_1200_trials_is_below_three_megabytes(tmp_path):
    trials = random_trials(1200)
    write_ledger(tmp_path, trials, StoredSweep(test_of=dev_front(trials[:20])))
    write.write(tmp_path)
    text, page = read_page(tmp_path)
    assert page.tags.count("tr") > 1200
    assert len(text.encode()) < 3e6


def test_page_shows_fingerprints_but_no_credentials(run):
    change_settings(run.folder, "data:\n  train: https://user:secret@example.org/a.csv\n")
    prepared = {
        "sentences": "sentences-1f",
        "examples": {"triplet": "examples-2e"},
        "model": {},
        "model_identity": "3d",
    }
    (run.folder / "prepared.json").write_text(json.dumps(prepared))
    write.write(run.folder)
    text, _ = read_page(run.folder)
    assert "sentences-1f" in text and "examples-2e" in text
    assert "example.org/a.csv" in text and "secret" not in text


def test_configuration_and_tracebacks_hide_local_folders():
    for folder in ("/home/ann/", "/home/ann b/", "~/data/", "C:\\Users\\ann\\"):
        assert hide_places(f"train: {folder}a.csv") == "train: …/a.csv"
        assert hide_places(f"- '{folder}a.csv'") == "- '…/a.csv'"
        assert hide_places(f'  File "{folder}a.py", line 3') == '  File "…/a.py", line 3'
    for text in ("train: s3://bucket/a.csv", "name: org/model", "a rate of 1/2 or 3 / 4"):
        assert hide_places(text) == text


def test_page_names_no_local_folder_of_the_configuration(run):
    change_settings(run.folder, "data:\n  train: /home/ann/private/reviews.csv\n")
    write.write(run.folder)
    text, _ = read_page(run.folder)
    assert "reviews.csv" in text and "/home/ann" not in text and "private" not in text


def test_commands_on_the_page_name_the_run_without_its_parent_folders(run):
    write.write(run.folder)
    text, _ = read_page(run.folder)
    assert f"raysweep export {run.folder.parent.name}/{run.folder.name} " in text
    assert str(run.folder.parent.parent) not in text


def test_member_table_begins_with_the_knee(run):
    summary = summarize(load(run.folder))
    (knee,) = [member.dev for member in summary.members if member.is_knee]
    assert not summary.members[0].is_knee
    first, *others = re.findall(
        "<tr.*?</tr>", member_table(summary).partition("<tbody>")[2], re.DOTALL
    )
    assert [first.count(mark) for mark in ("★ knee", f">{knee.trial}<", f">{knee.step}<")] == [
        1,
        1,
        1,
    ]
    assert len(others) == len(summary.members) - 1


def test_scores_are_defined_above_the_member_table(run):
    summary = write.write(run.folder).summary
    text, _ = read_page(run.folder)
    content = text.partition('id="front"')[2]
    definitions = content.find(escape_html(scores_text(summary.results.info)))
    assert 0 <= definitions < content.find("<table")


def test_page_has_the_box_of_next_commands(run):
    summary = write.write(run.folder).summary
    _, page = read_page(run.folder)
    shown = [text.strip() for text in page.shown]
    place = f"{run.folder.parent.name}/{run.folder.name}"
    commands = [step.command.replace(str(run.folder), place) for step in steps(summary)]
    assert "next" in page.ids and len(commands) == 3
    assert [command for command in commands if command not in shown] == []


def test_parameters_searched_on_a_logarithmic_scale_get_such_an_axis():
    trials = random_trials(14)
    axes = {parameter["name"]: parameter.get("log") for parameter in parameters(trials, ["margin"])}
    assert axes["margin"] is True
    without = {parameter["name"]: parameter.get("log") for parameter in parameters(trials)}
    assert without == axes | {"margin": False}


def test_page_shows_seed_and_versions(tmp_path):
    info = dataclasses.replace(INFO, seed=4711, packages={"Python": "3.99.1", "torch": "9.8.7+cpu"})
    write_ledger(tmp_path, random_trials(3), StoredSweep(info=info))
    write.write(tmp_path)
    text, _ = read_page(tmp_path)
    rows = [
        re.sub("<[^>]*>", " ", row).split() for row in re.findall("<tr.*?</tr>", text, re.DOTALL)
    ]
    assert ["seed", "4711"] in rows
    assert ["raysweep", INFO.version] in rows
    assert ["packages", "Python", "3.99.1,", "torch", "9.8.7+cpu"] in rows


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff\xfe", b"[" * 100_000])
def test_damaged_fingerprints_are_omitted(tmp_path, content):
    (tmp_path / "prepared.json").write_bytes(content)
    (tmp_path / "config.yaml").write_bytes(content)
    assert Origin.read(LocalFolder(tmp_path)).identities == ()


@pytest.mark.parametrize("with_texts", [True, False])
def test_page_embeds_stored_readings(run, with_texts):
    stored = invented_readings(load(run.folder), with_texts=with_texts)
    write_readings(run.folder, stored)
    summary = write.write(run.folder).summary
    _, page = read_page(run.folder)
    data = page.data["readings"]
    assert (
        data["split"] == "test"
        and len(data["queries"]) == len(stored.shown)
        and data["hasTexts"] == with_texts
    )
    names = {member.dev.name: name_of_point(member.dev) for member in summary.members} | {
        "reference": REFERENCE
    }
    assert set(data["retrieved"]) == set(names)
    for name, key in names.items():
        for (places, cosines), query in zip(data["retrieved"][name], stored.shown, strict=True):
            ids = stored.retrieved[key].ids[query].tolist()
            texts = [
                escape_controls(stored.texts[id_]) if with_texts else f"sentence {id_}"
                for id_ in ids
            ]
            assert [data["texts"][place] for place in places] == texts
            assert [data["labels"][place] for place in places] == [
                ("negative", "positive")[id_ % 2] for id_ in ids
            ]
            assert cosines == pytest.approx(1000 * stored.retrieved[key].cosines[query], abs=0.6)


def test_long_readings_are_truncated(run, monkeypatch):
    stored = invented_readings(load(run.folder))
    long = dataclasses.replace(stored, texts=dict.fromkeys(stored.texts, "word " * 1000))
    members = [member.dev for member in summarize(load(run.folder)).members]
    data = reading_values(long, members, ("negative", "positive"))
    assert len(data["queries"]) == len(stored.shown) and {len(text) for text in data["texts"]} == {
        400
    }
    monkeypatch.setattr("raysweep.report.page.data.MAX_TOTAL_CHARACTERS", 5000)
    assert len(reading_values(long, members, ("negative", "positive"))["queries"]) == 1, (
        "the first is shown anyway"
    )


def test_unknown_label_is_shown_as_a_number(run):
    stored = invented_readings(load(run.folder))
    members = [member.dev for member in summarize(load(run.folder)).members]
    assert set(reading_values(stored, members, ("negative",))["labels"]) == {"negative", "1"}


def test_importance_table_has_a_bar_per_share():
    values = {
        "polarity": {"margin": 0.75, "<b>": 0.25},
        "similarity": {},
        "objective": {"<b>": 0.6, "margin": 0.4},
    }
    shares = {}
    for target, by_name in values.items():
        shares[target] = {
            name: Share(value, Interval(value - 0.2, value + 0.1))
            for name, value in by_name.items()
        }
    page = Page(importance_table(shares))
    cells = [text for text in page.shown if text.strip()][4:]
    assert cells[:4] == ["<b>", "25% [5%, 35%]", "–", "60% [40%, 70%]"]  # noqa: RUF001
    assert cells[4:] == ["margin", "75% [55%, 85%]", "–", "40% [20%, 50%]"]  # noqa: RUF001
    assert page.tags.count("svg") == 4 and importance_table({"polarity": {}}) == ""


@pytest.mark.parametrize(("num_trials", "num_missing"), [(14, 6), (24, 0)])
def test_importance_section_states_the_number_of_missing_trials(tmp_path, num_trials, num_missing):
    pairs = [(0.7, 0.4), (0.8, 0.3)]
    trials = [
        StoredTrial(
            {"loss": "ab"[number % 2]}, "completed", "", [*pairs[:1], (0.8 + number / 1000, 0.3)]
        )
        for number in range(num_trials)
    ]
    write_ledger(tmp_path, trials)
    write.write(tmp_path)
    _, page = read_page(tmp_path)
    text = " ".join(page.shown)
    assert (f"{num_missing} more are needed" in text) == (num_missing > 0)
    assert ("variance" in text) == (num_missing == 0)


def test_page_lists_missed_constraints_and_guards(tmp_path):
    """S of the reference encoder is 0.47, so S = 0.423 meets the minimum retention of 0.9 and S = 0.42295 does not."""
    info = dataclasses.replace(INFO, constraints={"polarity": 0.7, "retention": 0.9})
    pairs = [(0.69996, 0.46), (0.70, 0.423), (0.9, 0.42295)]
    write_ledger(
        tmp_path,
        [
            StoredTrial({"loss": str(number)}, "completed", "", [pair])
            for number, pair in enumerate(pairs)
        ],
        StoredSweep(info=info),
    )
    guards = [
        GuardScore(trial, 1, "plain", None, "<b>", "map", 0.6, 0.6 + 0.1 * trial)
        for trial in range(2)
    ]
    ledger = Ledger(tmp_path)
    ledger.append(GuardsMeasured(scores=tuple(guards)))
    ledger.close()
    write.write(tmp_path)
    _, page = read_page(tmp_path)
    missed = [member["misses"] for member in page.data["members"]]
    assert missed == [
        ["P ≥ 70 (69.996)"],
        ["guard <b> ≥ 70.0 (60.0)"],
        ["retention ≥ 90 (89.9894)"],
    ]
    assert [len(member["guards"]) for member in page.data["members"]] == [1, 1, 0]


def test_tiles_name_the_split_of_their_scores(run):
    summary = write.write(run.folder).summary
    text, _ = read_page(run.folder)
    knee = next(member for member in summary.members if member.is_knee)
    on_test, on_dev = (
        f"{100 * point['polarity']:.1f} / {100 * point['similarity']:.1f}"
        for point in (knee.test, knee.dev)
    )
    assert (
        f"<dt>knee, P / S on test</dt><dd>{on_test}<small>{on_dev} on dev, where it was chosen;"
        in text
    )
