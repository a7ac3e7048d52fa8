"""The HTML page of a comparison: its data against the fronts, and escaping."""

import html.parser
import json

import pytest

from raysweep.report.page.document import comparison_data, render_comparison
from raysweep.report.side_by_side import compare_runs, read_sides
from raysweep.storage.folder import LocalFolder
from support.ledgers import MARKUP, StoredSweep, dev_front, random_trials, write_ledger
from support.pictures import blank_png


@pytest.fixture
def comparison(tmp_path):
    folders = []
    for seed, name in enumerate(["first", MARKUP.replace("/", "")]):
        folder = tmp_path / name
        folder.mkdir()
        trials = random_trials(12, seed=seed)
        write_ledger(folder, trials, StoredSweep(test_of=dev_front(trials)))
        folders.append(LocalFolder(folder))
    return compare_runs(read_sides(folders))


def test_data_has_each_front_with_its_knee(comparison):
    data = comparison_data(comparison)
    assert data["splits"] == ["dev", "test"]
    for side, values in zip(comparison.sides, data["sides"], strict=True):
        for split in comparison.splits:
            expected = [
                (point.name, point["similarity"], point["polarity"])
                for point in side.front.on(split)
            ]
            assert [point["name"] for point in values["fronts"][split]] == [
                name for name, *_ in expected
            ]
            scores = [score for point in values["fronts"][split] for score in point["value"]]
            assert scores == pytest.approx(
                [100 * score for _, *pair in expected for score in pair], abs=5e-4
            )
        knee = values["fronts"]["dev"][values["knee"]]
        assert knee["name"] == side.front.knee.dev.name


def test_limits_come_from_the_first_run_that_stores_them(comparison):
    limits = comparison_data(comparison)["limits"]
    references = comparison.sides[0].summary.references
    for split, values in limits.items():
        assert values["reference"]["p"] == pytest.approx(
            100 * references[split]["polarity"], abs=5e-4
        )
        oracle = comparison.sides[0].summary.oracles[split]
        expected = [[100 * point["similarity"], 100 * point["polarity"]] for point in oracle]
        assert values["oracle"] == [pytest.approx(pair, abs=5e-4) for pair in expected]


class Texts(html.parser.HTMLParser):
    """Collects the elements, the shown texts and the data of a page."""

    def __init__(self, content):
        super().__init__()
        self.tags, self.shown, self.data, self.is_data = [], [], "", False
        self.feed(content)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.is_data = dict(attributes).get("id") == "data"

    def handle_data(self, data):
        if self.is_data:
            self.data += data
        else:
            self.shown.append(data)

    def handle_endtag(self, tag):
        self.is_data = False


def test_names_of_runs_are_escaped(comparison):
    text = render_comparison(comparison, blank_png()).decode()
    page = Texts(text)
    label = comparison.sides[1].label
    assert "<" in label and label not in text
    assert page.tags.count("script") == 3
    assert any(label in shown for shown in page.shown)
    assert json.loads(page.data)["sides"][1]["label"] == label


def test_page_has_a_row_per_point(comparison):
    page = Texts(render_comparison(comparison, blank_png()).decode())
    num_points = sum(len(side.front.members) for side in comparison.sides)
    names = [point.name for side in comparison.sides for point in side.front.on("dev")]
    assert len(names) == num_points
    for name in names:
        assert name in page.shown
