"""The report's page in a real browser: by mouse and keyboard, on a phone, in dark colors, and with hostile texts.

Starting a browser, opening a window and loading a page take longer than most of these tests. They share one browser, a
window of each kind, and the page of one report, which is reset after each test.
"""

import contextlib
import dataclasses
import functools
import http.server
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raysweep.report import figures
from raysweep.report import write as reports
from raysweep.report.importance import Importance, Share
from raysweep.report.tables import short
from raysweep.results.events import GuardsMeasured, SessionFinished, SweepSteered, TrialEnded
from raysweep.results.ledger import Ledger
from raysweep.results.reader import load
from raysweep.results.readings import REFERENCE, load_readings
from raysweep.results.types import GuardScore, TrialStatus
from raysweep.storage.folder import LocalFolder
from raysweep.uncertainty.interval import Interval
from support.chromium import PHONE, Window, address_of, axe_violations, chromium, window
from support.ledgers import (
    INFO,
    StoredSweep,
    StoredTrial,
    baseline,
    dev_front,
    trials_of_every_status,
    write_ledger,
)
from support.pictures import blank_png
from support.query_scores import invented_readings, write_readings

NUM_TRIALS = 20  # axe checks every text in the table of trials, which takes most of the time

HOSTILE = "</script><img src=x onerror=alert(1)>\u2028\u202eabc\x00" + "w" * 400


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of trials of every status, with baselines, whose front was scored on test."""
    folder = tmp_path_factory.mktemp("run")
    trials = trials_of_every_status(NUM_TRIALS)
    baselines = [
        baseline("dev", "probe", 0.70, 0.44, value=0.3),
        baseline("test", "probe", 0.69, 0.43, value=0.3),
        baseline("test", "published", 0.83, 0.30, label="elsewhere", width=None),
    ]
    write_ledger(folder, trials, StoredSweep(test_of=dev_front(trials), baselines=baselines))
    write_readings(folder, invented_readings(load(folder)))
    return report_of(folder)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder within the context and return its address."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def report_of(folder: Path) -> Path:
    """Write the report of a run, with blank pictures and invented importances, and return its page."""
    by_name = {
        "loss": Share(0.6, Interval(0.2, 0.9)),
        "learning_rate": Share(0.4, Interval(0.1, 0.8)),
    }
    importance = Importance(dict.fromkeys(("polarity", "similarity", "objective"), by_name))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reports, "importances", lambda _: importance)
        patched.setattr(figures, "front_figure", lambda _: blank_png())
        patched.setattr(figures, "progress_figure", lambda _: blank_png())
        return reports.write(folder).folder / "report.html"


STATE = """() => JSON.stringify([
    { ...selection, axes: [...selection.axes] },
    [...document.querySelectorAll("#trial-sheet tbody tr")].map((row) => [row.innerText, row.hidden, row.className]),
    [...document.querySelectorAll("input, select, details")].map((control) => [control.value, control.checked, control.open]),
    ["#pinned", "#filter-problems", "#reading"].map((name) => document.querySelector(name).innerText),
    document.documentElement.dataset.theme || "auto",
])"""
"""The part of the page's state that tests change, as a text."""

RESET = """() => {
    document.activeElement.blur();
    const choose = (box, value) => {
        box.value = value;
        box.dispatchEvent(new Event("change"));
    };
    choose(document.querySelector("#top-controls select"), "auto");
    choose(document.querySelector("#query"), "0");
    document.querySelector("#front-chart details").open = false;
    const byTrial = document.querySelector('th[data-key="trial"]');
    byTrial.removeAttribute("aria-sort");
    byTrial.querySelector("button").click();
    const knee = run.members.find((member) => member.knee);
    change({ split: "dev", area: null, axes: new Map(), words: "", pinned: knee.point });
}"""


@pytest.fixture(scope="module")
def desktop(browser: Any) -> Iterator[Window]:
    with window(browser) as desktop_window:
        yield desktop_window


@pytest.fixture(scope="module")
def phone(browser: Any) -> Iterator[Window]:
    with window(browser, color_scheme="dark", **PHONE) as phone_window:
        yield phone_window


@pytest.fixture
def page(desktop: Window, folder: Path) -> Iterator[Any]:
    """Return the page of ``folder``, reset to its initial state; it must log no problems during a test."""
    address = address_of(folder)
    if desktop.page.url != address:
        desktop.show(address)
    opened = desktop.page.evaluate(STATE)
    yield desktop.page
    try:
        desktop.check_quiet()
        desktop.page.evaluate(RESET)
        assert desktop.page.evaluate(STATE) == opened
    except BaseException:
        desktop.page.goto("about:blank")  # so that the next test loads the page again
        raise


def members(page: Any) -> list[dict[str, Any]]:
    return page.evaluate("run.members")


def place_of(page: Any, member: dict[str, Any]) -> tuple[float, float]:
    """Return the position of a member's mark in the window."""
    page.locator("#front-canvas").scroll_into_view_if_needed()
    return page.evaluate(
        """(place) => {
            const holder = document.getElementById("front-canvas");
            const box = holder.getBoundingClientRect();
            const chart = echarts.getInstanceByDom(holder);
            const [x, y] = chart.convertToPixel({xAxisIndex: 0, yAxisIndex: 0}, position(place, selection.split));
            return [box.x + x, box.y + y];
        }""",
        member["point"],
    )


def shown_trials(page: Any) -> list[int]:
    """Return the trials shown in the table, in its order."""
    cells = page.locator("#trial-sheet tbody tr:not([hidden]) td:first-child")
    return [int(text) for text in cells.all_inner_texts()]


def column(page: Any, key: str) -> list[str]:
    place = page.locator(f'#trial-sheet th[data-key="{key}"]').evaluate(
        "head => head.cellIndex + 1"
    )
    return page.locator(
        f"#trial-sheet tbody tr:not([hidden]) td:nth-child({place})"
    ).all_inner_texts()


def test_mark_shows_its_configuration_and_is_pinned_by_a_click(page: Any) -> None:
    assert "knee" in page.locator("#pinned").inner_text(), "the knee is pinned at first"
    member = next(member for member in members(page) if not member["knee"])
    x, y = place_of(page, member)
    page.mouse.move(x - 30, y - 30)
    page.mouse.move(x, y, steps=4)
    shown = page.locator("#front-canvas .tip").inner_text()
    trial, step = member["name"].split(":")[:2]
    assert (
        f"Trial {trial}, rung {step}" in shown and "learning_rate" in shown and "retention" in shown
    )
    page.mouse.click(x, y)
    assert f"Trial {trial}, rung {step}" in page.locator("#pinned").inner_text()
    assert page.locator("#export-command").inner_text().endswith(f"--point {member['name']}")
    pinned = page.locator("#trial-sheet tr.pinned td:first-child")
    assert pinned.inner_text() == trial


def test_mark_is_pinned_by_a_tap(phone: Window, folder: Path) -> None:
    page = phone.show(address_of(folder))
    member = next(member for member in members(page) if not member["knee"])
    page.touchscreen.tap(*place_of(page, member))
    trial, step = member["name"].split(":")[:2]
    assert f"Trial {trial}, rung {step}" in page.locator("#pinned").inner_text()
    assert page.locator("#export-command").inner_text().endswith(f"--point {member['name']}")
    phone.check_quiet()


def test_export_command_is_copied(page: Any) -> None:
    page.evaluate(
        "document.addEventListener('copy', () => (window.copied = String(getSelection())))"
    )
    page.evaluate(
        "navigator.clipboard && (navigator.clipboard.writeText = async (text) => { window.copied = text; })"
    )
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("window.copied").startswith("raysweep export ")


def test_selected_area_filters_table_and_charts(page: Any) -> None:
    all_trials = shown_trials(page)
    best = max(members(page), key=lambda member: member["test"]["p"])
    x, y = place_of(page, best)
    page.mouse.move(x - 25, y - 25)
    page.mouse.down()
    page.mouse.move(x + 5, y + 5, steps=4)
    page.mouse.move(x + 25, y + 25, steps=4)
    page.mouse.up()
    page.locator("#selection-bar").wait_for(state="visible")
    shown = shown_trials(page)
    area = page.evaluate("selection.area")
    expected = page.evaluate(
        """({s, p}) => [...new Set(points.trial.filter((_, i) => points.s[i] >= s[0] && points.s[i] <= s[1]
            && points.p[i] >= p[0] && points.p[i] <= p[1]))].sort((a, b) => a - b)""",
        area,
    )
    assert shown == expected and 0 < len(shown) < len(all_trials)
    assert f"{len(shown)} of {NUM_TRIALS} trials" in page.locator("#selection-bar").inner_text()
    page.locator("#curves-chart .chart").scroll_into_view_if_needed()
    page.locator("#curves-chart canvas").wait_for()
    drawn = page.evaluate(
        """() => echarts.getInstanceByDom(document.querySelector("#curves-chart .chart")).getOption().series
            .find((series) => series.id === "ends").data.map((mark) => trials[mark.trial].trial)"""
    )
    assert sorted(drawn) == shown
    page.get_by_role("button", name="Show all").click()
    assert shown_trials(page) == all_trials


def test_front_is_operated_by_keyboard(page: Any) -> None:
    page.locator("#front-canvas").focus()
    knee = next(member["name"] for member in members(page) if member["knee"])
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    similarities = page.evaluate("points.s")
    by_similarity = sorted(members(page), key=lambda member: similarities[member["point"]])
    second = by_similarity[1]["name"]
    assert second != knee and page.locator("#export-command").inner_text().endswith(
        f"--point {second}"
    )
    assert "Pinned: Trial" in page.locator("body > div[aria-live]").inner_text()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    assert "Nothing is pinned" in page.locator("#pinned").inner_text()
    page.get_by_text("Select an area by numbers").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("80")
    page.keyboard.press("Tab")
    trials = shown_trials(page)
    assert trials and all(
        page.evaluate("(n) => pointsOfTrial.get(n).some((place) => points.p[place] >= 80)", number)
        for number in trials
    )


def test_zoom_is_switched_off_again(page: Any) -> None:
    zoom = page.get_by_role("button", name="Zoom to the front")
    limits = """() => {
        const { xAxis, yAxis } = echarts.getInstanceByDom(document.querySelector("#front-canvas")).getOption();
        return [xAxis[0].min, xAxis[0].max, yAxis[0].min, yAxis[0].max];
    }"""
    zoom.click()
    assert None not in page.evaluate(limits)
    zoom.click()
    assert page.evaluate(limits) == [None] * 4


def test_axis_of_the_parallel_coordinates_filters_trials(page: Any) -> None:
    """Trials without a value have their own position on the axis, and can be selected too."""
    trials = page.evaluate("trials")
    margin = [parameter["name"] for parameter in page.evaluate("run.parameters")].index("margin")
    chart = page.locator("#parallel-chart .chart")
    chart.scroll_into_view_if_needed()
    chart.locator("canvas").wait_for()
    drawn = [trial for trial in trials if trial["objective"] is not None]
    places = [
        (trial["values"][margin], chart.evaluate(PLACE_ON_AXIS, [trial["trial"], margin]))
        for trial in drawn
    ]
    (x, bottom), *others = [place for value, place in places if value is None]
    lowest = max(y for value, (_, y) in places if value is not None)
    assert all(place == [x, bottom] for place in others) and bottom > lowest + 4
    page.mouse.move(x, (bottom + lowest) / 2)
    page.mouse.down()
    page.mouse.move(x, bottom + 8, steps=4)
    page.mouse.up()
    page.locator("#selection-bar").wait_for(state="visible")
    assert shown_trials(page) == [
        trial["trial"] for trial in trials if trial["values"][margin] is None
    ]


PLACE_ON_AXIS = """(holder, [number, dimension]) => {
    const box = holder.getBoundingClientRect();
    const series = echarts.getInstanceByDom(holder).getModel().getSeriesByIndex(0);
    const value = series.option.data.find((line) => trials[line.trial].trial === number).value[dimension];
    const [x, y] = series.coordinateSystem.dataToPoint(value, `dim${dimension}`);
    return [box.x + x, box.y + y];
}"""
"""Return the point in the window where a trial's line crosses an axis."""


def announced(page: Any) -> str:
    return page.locator("body > div[aria-live]").inner_text()


def standing(page: Any, trial: dict[str, Any]) -> str:
    """Return a trial's status in the words of the legends."""
    statuses = page.evaluate("run.statuses")
    return next(status["words"] for status in statuses if status["standing"] == trial["standing"])


def focus_chart(page: Any, name: str) -> None:
    """Focus a chart, with the mouse moved away so that scrolling does not put the chart under it."""
    page.mouse.move(0, 0)
    page.get_by_role("application", name=name).focus()


def check_tip(page: Any, chart: str, trial: dict[str, Any]) -> None:
    """Wait for a trial's tip; ECharts first shows the previous tip again."""
    from playwright.sync_api import expect  # an extra, without which these tests are skipped

    expect(page.locator(f"{chart} .tip")).to_have_text(re.compile(f"^Trial {trial['trial']},"))


def test_learning_curves_are_operated_by_keyboard(page: Any) -> None:
    scored = [trial for trial in page.evaluate("trials") if trial["rungs"]]
    focus_chart(page, "Learning curves")
    page.keyboard.press("Home")
    first = scored[0]
    scores = ", ".join(f"{objective:.1f}" for _, objective, *_ in first["rungs"])
    assert (
        announced(page)
        == f"Trial {first['trial']}, {standing(page, first)}, objective by rung {scores}"
    )
    check_tip(page, "#curves-chart", first)
    page.keyboard.press("ArrowRight")
    assert announced(page).startswith(f"Trial {scored[1]['trial']},")
    by_last_score = sorted(scored, key=lambda trial: trial["rungs"][-1][1])
    page.keyboard.press("ArrowUp")
    above = by_last_score[by_last_score.index(scored[1]) + 1]
    assert announced(page).startswith(f"Trial {above['trial']},")
    page.keyboard.press("Enter")
    assert f"Trial {above['trial']}, rung" in page.locator("#pinned").inner_text()
    page.keyboard.press("Escape")
    assert "Nothing is pinned" in page.locator("#pinned").inner_text()
    page.keyboard.press("Tab")
    page.locator("#curves-chart .tip").wait_for(state="hidden")


def test_keys_start_at_the_pinned_trial_and_ignore_browser_shortcuts(page: Any) -> None:
    """After a click, the chart has the focus but no trial is selected."""
    scored = [trial["trial"] for trial in page.evaluate("trials") if trial["rungs"]]
    chart = page.locator("#curves-chart .chart")
    chart.scroll_into_view_if_needed()
    page.locator("#curves-chart canvas").wait_for()
    page.evaluate(
        "(number) => pinTrial({ trial: trials.findIndex(({ trial }) => trial === number) })",
        scored[1],
    )
    announced_before = announced(page)

    def press(key: str, **modifiers: bool) -> None:
        event = f"new KeyboardEvent('keydown', {json.dumps({'key': key, **modifiers})})"
        chart.evaluate(f"place => place.dispatchEvent({event})")

    for modifier in ("altKey", "ctrlKey", "metaKey"):
        press("ArrowRight", **{modifier: True})
    assert announced(page) == announced_before
    press("ArrowRight")
    assert announced(page).startswith(f"Trial {scored[2]},")
    chart.evaluate("place => place.dispatchEvent(new FocusEvent('blur'))")
    press("End")
    assert announced(page).startswith(f"Trial {scored[-1]},")
    chart.evaluate("place => place.dispatchEvent(new FocusEvent('blur'))")


def test_parallel_coordinates_and_slices_are_operated_by_keyboard(page: Any) -> None:
    page.locator("#filter").fill("status!=paused")
    page.locator("#selection-bar").wait_for(state="visible")
    unpaused = [trial for trial in page.evaluate("trials") if trial["status"] != "paused"]
    scored = [trial for trial in unpaused if trial["objective"] is not None]
    focus_chart(page, "Parallel coordinates")
    page.keyboard.press("End")
    last = scored[-1]
    assert announced(page).startswith(
        f"Trial {last['trial']}, {standing(page, last)}, loss {last['values'][0]}, "
    )
    check_tip(page, "#parallel-chart", last)
    by_objective = sorted(scored, key=lambda trial: trial["objective"])
    page.keyboard.press("ArrowDown")
    below = by_objective[max(0, by_objective.index(last) - 1)]
    assert announced(page).startswith(f"Trial {below['trial']},")

    names = [parameter["name"] for parameter in page.evaluate("run.parameters")]
    rate = names.index("learning_rate")
    with_rate = [trial for trial in scored if trial["values"][rate] is not None]
    by_rate = sorted(with_rate, key=lambda trial: trial["values"][rate])
    focus_chart(page, "Slice: learning_rate")
    page.keyboard.press("Home")
    for trial in by_rate[:5]:
        assert announced(page).startswith(
            f"Trial {trial['trial']}, {standing(page, trial)}, learning_rate "
        )
        assert announced(page).endswith(f", objective {trial['objective']:.1f}")
        page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert f"Trial {by_rate[-1]['trial']}, rung" in page.locator("#pinned").inner_text()


def test_table_is_sorted_and_filtered(page: Any) -> None:
    head = page.get_by_role("button", name="objective", exact=True)
    head.focus()
    page.keyboard.press("Enter")
    shown = [float(text) for text in column(page, "objective") if re.match(r"[\d.]+$", text)]
    assert shown == sorted(shown, reverse=True) and len(shown) > NUM_TRIALS // 2
    assert page.locator('th[data-key="objective"]').get_attribute("aria-sort") == "descending"
    head.click()
    assert [
        float(text) for text in column(page, "objective") if re.match(r"[\d.]+$", text)
    ] == shown[::-1]
    page.locator("#filter").fill("loss=triplet P>=75")
    page.locator("#selection-bar").wait_for(state="visible")
    assert shown_trials(page) and set(column(page, "parameter 0")) == {"triplet"}
    assert all(float(text) >= 75 for text in column(page, "p"))
    num_completed = page.evaluate("trials.filter((trial) => trial.status === 'completed').length")
    assert num_completed != len(shown_trials(page))
    page.locator("#filter").fill("status=completed")
    page.get_by_text(f"{num_completed} of {NUM_TRIALS} trials", exact=True).wait_for()
    assert {text[2:] for text in column(page, "status")} == {"completed"}
    page.locator("#filter").fill("color=red")
    page.get_by_text("Unknown column: color.").wait_for()
    page.get_by_role("button", name="Show all").click()
    assert page.locator("#filter-problems").inner_text() == ""


def test_split_is_switched(page: Any) -> None:
    count = (
        "echarts.getInstanceByDom(document.getElementById('front-canvas')).getOption().series"
        ".find((series) => series.id === 'points').data.length"
    )
    page.locator("#front-canvas canvas").wait_for()
    assert page.evaluate(count) == page.evaluate("points.trial.length")
    page.locator(".choices input[value=dev]").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("selection.split") == "test"
    assert page.evaluate(count) == 0 and "published" in page.locator(".legend").first.inner_text()


def test_retrieved_sentences_are_shown_side_by_side(page: Any, folder: Path) -> None:
    run = LocalFolder(folder.parents[1])
    readings = load_readings(run, load(run))
    assert readings is not None
    page.locator("#query").focus()
    page.keyboard.press("ArrowDown")
    query = readings.shown[1]
    member = next(member for member in members(page) if not member["knee"])
    page.evaluate("(place) => pin(place)", member["point"])
    trial, step = (int(number) for number in member["name"].split(":")[:2])
    lists = page.locator(".readings ol")
    for column, name in enumerate([REFERENCE, (trial, step, "plain", None)]):
        retrieved = readings.retrieved[name]
        items = lists.nth(column).locator("li").all_inner_texts()
        for text, sentence, cosine in zip(
            items, retrieved.ids[query], retrieved.cosines[query], strict=True
        ):
            assert (
                f"sentence {sentence} <b>&\N{REPLACEMENT CHARACTER}\N{SYMBOL FOR BELL}" in text
                and f"{cosine:.3f}" in text
            )
            label = readings.labels[int(sentence)]
            is_same = label == readings.query_labels[query]
            assert f"{'✓' if is_same else '✗'} {INFO.label_names[label]}" in text
    assert f"Trial {trial}, rung {step}" in page.locator(".readings h3").nth(1).inner_text()
    page.get_by_role("button", name="Next").click()
    assert page.locator("#query").input_value() == "2"


def test_served_page_of_a_running_sweep_reloads(
    browser: Any, desktop: Window, tmp_path: Path
) -> None:
    page_file = running_report(tmp_path, num_trials=4)
    with served(page_file.parent) as address, window(browser) as watching:
        watching.page.clock.install()
        page = watching.show(f"{address}/report.html")
        assert len(shown_trials(page)) == 4
        other = next(member for member in members(page) if not member["knee"])
        page.evaluate("(place) => pin(place)", other["point"])
        page.locator(".choices input[value=test]").check(force=True)
        page.locator("#filter").fill("rungs>=1")
        page.locator("#selection-bar").wait_for(state="visible")
        page.locator("#filter").blur()
        running_report(tmp_path, num_trials=7)
        page.get_by_label("follow the run").uncheck()
        page.clock.fast_forward(100_000)
        assert page.evaluate("trials.length") == 4
        page.get_by_label("follow the run").check()
        with page.expect_navigation():
            page.clock.fast_forward(20_000)
        page.wait_for_selector("html[data-ready]", state="attached")
        assert page.evaluate("trials.length") == 7
        assert page.locator("#export-command").inner_text().endswith(f"--point {other['name']}")
        assert page.locator("#filter").input_value() == "rungs>=1"
        assert page.evaluate("selection.split") == "test"
        assert page.locator(".choices input[value=test]").is_checked()
    page = desktop.show(address_of(page_file))
    assert page.get_by_label("follow the run").count() == 0


def running_report(folder: Path, num_trials: int) -> Path:
    """Write the report of a running sweep, driven by this process, with ``num_trials`` trials."""
    (folder / "ledger.jsonl").unlink(missing_ok=True)
    trials = trials_of_every_status(num_trials)
    write_ledger(folder, trials, StoredSweep(test_of=dev_front(trials), finish=None))
    with contextlib.closing(Ledger(folder)) as driver:
        driver.open()
        return report_of(folder)


def check_by_axe(page: Any, other_scheme: str) -> None:
    """Check all rules in the current colors, and those on contrast in the other color scheme."""
    assert axe_violations(page) == []
    page.get_by_label("Colors").select_option(other_scheme)
    assert axe_violations(page, "color-contrast") == []
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= page.viewport_size["width"], "only boxes scroll horizontally"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report of a run with a constraint, guards, a trial stopped by a person, and a knee that is also best."""
    folder = tmp_path_factory.mktemp("guarded")
    info = dataclasses.replace(INFO, constraints={"polarity": 0.8})
    scores = [(0.70, 0.46), (0.85, 0.44), (0.90, 0.20), (0.65, 0.40)]
    losses = ["triplet", "softmax", "multiple_negatives", "triplet"]
    configs = [
        {"loss": loss, "freezing": "emb+B0-2" if loss == "softmax" else "emb"} for loss in losses
    ]
    trials = [
        StoredTrial(config, "completed", "", [pair] * 2)
        for config, pair in zip(configs, scores, strict=True)
    ]
    trials[3] = trials[3]._replace(status="running")
    write_ledger(folder, trials, StoredSweep(info=info, finish=None))
    measured = [
        GuardScore(trial, 1, "plain", None, name, "spearman_cosine", score, least)
        for trial in range(3)
        for name, score, least in (
            ("sts", 0.93, 0.79),
            ("trec", 0.90 if trial == 1 else 0.6, 0.7),
            ("free", 0.5, None),
        )
    ]
    ledger = Ledger(folder)
    ledger.append(SweepSteered(request="1", action="stop-trial", trial=3))
    ledger.append(TrialEnded(trial=3, status=TrialStatus.STOPPED, reason="a person asked for it"))
    ledger.append(GuardsMeasured(scores=tuple(measured)))
    ledger.append(SessionFinished(status="completed", reason="", seconds=1.0))
    ledger.close()
    return report_of(folder)


def test_pinned_card_shows_guard_scores_and_missed_limits(desktop: Window, guarded: Path) -> None:
    page = desktop.show(address_of(guarded))
    shown = {}
    for member in members(page):
        page.evaluate("(place) => pin(place)", member["point"])
        shown[member["name"].split(":")[0]] = page.locator("#pinned").inner_text()
        rows = page.locator("#pinned-guards tbody tr").all_inner_texts()
        assert [row.split()[0] for row in rows] == ["free", "sts", "trec"]
        assert rows[0].endswith("no limit") and rows[1].split()[-4:] == [
            "93.0",
            "meets",
            "≥",
            "79.0",
        ]
    assert (
        "misses P ≥ 80.0 (70.0)" in shown["0"] and "misses guard trec ≥ 70.0 (60.0)" in shown["0"]
    )
    assert "misses P" not in shown["2"] and "misses guard trec ≥ 70.0 (60.0)" in shown["2"]
    assert "misses" not in shown["1"] and "★ knee, ◆ best objective" in shown["1"]
    assert page.locator("table.members th").all_inner_texts()[-3:] == [
        "free",
        "sts ≥\N{NO-BREAK SPACE}79.0",
        "trec ≥\N{NO-BREAK SPACE}70.0",
    ]
    desktop.check_quiet()


def test_trial_stopped_by_a_person_is_shown_as_such(desktop: Window, guarded: Path) -> None:
    page = desktop.show(address_of(guarded))
    row = page.locator("#trial-sheet tbody tr").nth(3)
    status = row.locator("td").nth(1).inner_text()
    assert status.startswith("◀\N{NO-BREAK SPACE}stopped by a person")
    page.locator("#curves-chart").scroll_into_view_if_needed()
    legend = page.get_by_label("Legend of the learning curves").inner_text()
    assert "stopped by a person" in legend and "stopped early" not in legend
    page.locator("#filter").fill("status=stopped")
    page.locator("#selection-bar").wait_for(state="visible")
    assert shown_trials(page) == [3]


def test_best_mark_is_visible_around_the_knee(desktop: Window, guarded: Path) -> None:
    page = desktop.show(address_of(guarded))
    page.locator("#front-canvas canvas").first.wait_for()
    both = page.evaluate(
        """() => echarts.getInstanceByDom(document.getElementById("front-canvas")).getOption().series
            .find((series) => series.id === "highlights").data.map((mark) => [mark.point, mark.symbolSize])"""
    )
    (best, diamond), (knee, star) = both
    assert best == knee
    assert diamond > 1.5 * star, (
        "a diamond's edges are closer to its center than its corners, by a factor of sqrt(2)"
    )


TEXTS = """(holder) => {
    const shown = echarts.getInstanceByDom(holder).getZr().storage.getDisplayList(true);
    return shown.filter((shape) => shape.style && shape.style.text).map((shape) => shape.style.text);
}"""
"""Return the texts in a chart, line by line, in drawing order."""


def test_slices_show_the_names_of_all_categories(
    desktop: Window, guarded: Path, folder: Path
) -> None:
    """Names are side by side on one line or two, and vertical if that is too narrow."""
    for report in (guarded, folder):
        page = desktop.show(address_of(report))
        for parameter in page.evaluate("run.parameters"):
            if parameter["kind"] == "category":
                holder = page.get_by_role("application", name=f"Slice: {parameter['name']}")
                holder.scroll_into_view_if_needed()
                holder.locator("canvas").wait_for()
                drawn = "".join(holder.evaluate(TEXTS))
                assert all(name in drawn for name in parameter["values"])


def test_pinned_trial_keeps_its_color(desktop: Window, guarded: Path) -> None:
    page = desktop.show(address_of(guarded))
    for name, series in (("#curves-chart", "lines"), ("#parallel-chart", "trials")):
        chart = page.locator(f"{name} .chart")
        chart.scroll_into_view_if_needed()
        chart.locator("canvas").first.wait_for()
        colors = chart.evaluate(
            """(holder, id) => echarts.getInstanceByDom(holder).getOption().series.find((entry) => entry.id === id).data
                .filter((line) => line.trial === pinnedTrial()).map((line) => [line.lineStyle.color, line.lineStyle.width])""",
            series,
        )
        (outline, wide), (color, narrow) = colors
        assert (
            color == page.evaluate("coloring().of(trials[pinnedTrial()])") != outline
            and narrow < wide
        )


def test_legend_lists_each_status_once(desktop: Window, folder: Path) -> None:
    page = desktop.show(address_of(folder))
    page.get_by_label("Color by").select_option("status")
    words = page.get_by_label("Legend of the learning curves").locator("li").all_inner_texts()
    assert len(words) == len(set(words)) > 1
    desktop.show(address_of(folder))


def test_numbers_have_the_format_of_the_command_line(page: Any) -> None:
    numbers = [
        1.57e-4,
        1e-5,
        6.534e-05,
        0.1,
        0.05,
        0.9996,
        0.99951,
        12.34,
        999.4,
        123.456,
        1234.5,
        1.5e7 + 0.5,
        -2.5e-6,
        20,
        0,
        131072,
    ]
    assert page.evaluate("(numbers) => numbers.map(shortNumber)", numbers) == [
        short(number) for number in numbers
    ]


def test_tables_fit_a_laptop_or_show_that_they_scroll(
    desktop: Window, phone: Window, guarded: Path
) -> None:
    page = desktop.show(address_of(guarded))
    widths = page.locator(".scroll").evaluate_all(
        "boxes => boxes.map((box) => box.scrollWidth - box.clientWidth)"
    )
    assert max(widths) <= 0
    page = phone.show(address_of(guarded))
    shades = page.locator("#trials .scroll").evaluate(
        "box => getComputedStyle(box).backgroundAttachment"
    )
    assert shades == "local, local, scroll, scroll"


def test_accessibility_on_a_desktop(page: Any) -> None:
    check_by_axe(page, "dark")


def test_accessibility_on_a_phone_in_dark_colors(phone: Window, folder: Path) -> None:
    page = phone.show(address_of(folder))
    assert page.evaluate("isDark()")
    check_by_axe(page, "light")
    page.get_by_label("Colors").select_option("auto")  # for the next page in this window
    phone.check_quiet()


def test_colors_are_switched(page: Any) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_label("Colors").select_option("dark")
    assert page.evaluate(ground) != light
    page.get_by_label("Colors").select_option("light")
    assert page.evaluate(ground) == light


def test_hostile_texts_are_escaped(phone: Window, tmp_path: Path) -> None:
    names: dict[str, Any] = dict.fromkeys(("name", "dataset", "model", "reference"), HOSTILE)
    info = dataclasses.replace(INFO, **names, label_names=(HOSTILE, "b"))
    trials = [
        StoredTrial({"loss": HOSTILE, HOSTILE: 1}, "stopped", HOSTILE, [(0.7, 0.4)]),
        StoredTrial({"loss": "b", HOSTILE: HOSTILE}, "completed", "", [(0.75, 0.35)]),
    ]
    points = [baseline("dev", "setfit", 0.7, 0.44, label=HOSTILE)]
    write_ledger(tmp_path, trials, StoredSweep(info=info, baselines=points))
    readings = invented_readings(load(tmp_path), "dev", k=4)
    write_readings(
        tmp_path, dataclasses.replace(readings, texts=dict.fromkeys(readings.texts, HOSTILE))
    )
    page = phone.show(address_of(report_of(tmp_path)))
    assert (
        page.locator("h1")
        .inner_text()
        .startswith("</script><img src=x onerror=alert(1)>\ufffd\ufffdabc")
    )
    page.locator("#front-canvas").focus()
    page.locator(".tip").wait_for()
    assert "<img src=x" in page.locator(".tip").inner_text()
    assert "<img src=x" in page.locator("#trial-sheet").inner_text()
    sentences = page.locator(".readings li").all_inner_texts()
    assert len(sentences) == 2 * 4
    for text in [page.locator("#reading").inner_text(), *sentences]:
        assert "</script><img src=x onerror=alert(1)>\ufffd\ufffdabc" in text
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    phone.check_quiet()


def test_page_of_a_run_without_rungs(desktop: Window, tmp_path: Path) -> None:
    write_ledger(tmp_path, [StoredTrial({"loss": "triplet"}, "failed", "out of memory", [])])
    page = desktop.show(address_of(report_of(tmp_path)))
    assert "No rungs have finished" in page.locator("main").inner_text()
    assert page.locator("#trial-sheet tbody tr").count() == 1
    desktop.check_quiet()


def test_page_without_scripts_has_tables_and_pictures(browser: Any, folder: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address_of(folder))
    for title in ("Polarity against similarity", "Objective against training examples seen"):
        box = page.locator(f'noscript img[alt="{title}"]').bounding_box()
        assert box is not None and box["height"] > 100
    assert page.locator("#trial-sheet tbody tr").count() == NUM_TRIALS
    context.close()
