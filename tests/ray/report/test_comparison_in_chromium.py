"""The page of a comparison in a real browser: tooltips, hidden runs, splits, zoom, and accessibility."""

from collections.abc import Iterator
from typing import Any

import pytest

from raysweep.report.page.document import render_comparison
from raysweep.report.side_by_side import SideBySide, compare_runs, read_sides
from raysweep.storage.folder import LocalFolder
from support.chromium import PHONE, Window, address_of, axe_violations, chromium, window
from support.ledgers import StoredSweep, dev_front, random_trials, write_ledger
from support.pictures import blank_png

SERIES = (
    "() => echarts.getInstanceByDom(document.querySelector('#fronts-canvas')).getOption().series"
)

AXES = """() => {
    const { xAxis, yAxis } = echarts.getInstanceByDom(document.querySelector("#fronts-canvas")).getOption();
    return [xAxis[0].min, xAxis[0].max, yAxis[0].min, yAxis[0].max];
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> SideBySide:
    folders = []
    for seed, name in enumerate(["first", "second", "third"]):
        folder = tmp_path_factory.mktemp("runs") / name
        folder.mkdir()
        trials = random_trials(12, seed=seed)
        write_ledger(folder, trials, StoredSweep(test_of=dev_front(trials)))
        folders.append(LocalFolder(folder))
    return compare_runs(read_sides(folders))


@pytest.fixture(scope="module")
def address(comparison: SideBySide, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("page") / "compare.html"
    file.write_bytes(render_comparison(comparison, blank_png()))
    return address_of(file)


@pytest.fixture
def desktop(browser: Any, address: str) -> Iterator[Window]:
    with window(browser) as opened:
        opened.show(address)
        yield opened
        opened.check_quiet()


def shown_fronts(page: Any) -> dict[str, list[list[float]]]:
    """Return the values of the visible points, by the run's label."""
    fronts = {}
    for series in page.evaluate(SERIES):
        if series and series["id"].startswith("points") and series["data"]:
            fronts[series["data"][0]["side"]] = [point["value"] for point in series["data"]]
    return fronts


def expected_fronts(comparison: SideBySide, split: Any) -> dict[str, list[Any]]:
    fronts = {}
    for side in comparison.sides:
        scores = [
            (100 * point["similarity"], 100 * point["polarity"]) for point in side.front.on(split)
        ]
        fronts[side.label] = [pytest.approx(pair, abs=1e-3) for pair in scores]
    return fronts


def test_fronts_of_both_splits_are_shown(desktop: Window, comparison: SideBySide) -> None:
    page = desktop.page
    assert shown_fronts(page) == expected_fronts(comparison, "test")
    page.get_by_text("dev", exact=True).first.click()
    assert shown_fronts(page) == expected_fronts(comparison, "dev")


def test_run_is_hidden_and_shown_by_its_button(desktop: Window, comparison: SideBySide) -> None:
    page = desktop.page
    label = comparison.sides[1].label
    button = page.get_by_role("switch", name=f"Show {label}")
    button.click()
    assert label not in shown_fronts(page) and len(shown_fronts(page)) == 2
    button.press("Enter")
    assert label in shown_fronts(page)


def test_zoom_is_switched_off_and_on(desktop: Window) -> None:
    page = desktop.page
    zoom = page.get_by_role("button", name="Zoom to the fronts")
    near = page.evaluate(AXES)
    assert all(limit is not None for limit in near)
    zoom.click()
    assert page.evaluate(AXES) == [None] * 4
    zoom.click()
    assert page.evaluate(AXES) == near


def test_tooltip_names_run_and_point(desktop: Window, comparison: SideBySide) -> None:
    page = desktop.page
    index = next(i for i, series in enumerate(page.evaluate(SERIES)) if series["id"] == "points 0")
    page.evaluate(
        """(seriesIndex) => echarts.getInstanceByDom(document.querySelector("#fronts-canvas"))
            .dispatchAction({ type: "showTip", seriesIndex, dataIndex: 0 })""",
        index,
    )
    side = comparison.sides[0]
    point = side.front.on("test")[0]
    text = page.locator(".tip").inner_text()
    assert side.label in text and point.name in text
    assert f"{100 * point['polarity']:.1f}" in text and f"{100 * point['similarity']:.1f}" in text


def test_page_is_accessible(browser: Any, desktop: Window, address: str) -> None:
    assert axe_violations(desktop.page) == []
    with window(browser, **PHONE, color_scheme="dark") as phone:
        assert axe_violations(phone.show(address)) == []
        assert phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        phone.check_quiet()
