"""The page of a report, as a browser would take it."""

import html.parser
import re

from raysweep.report import write
from support.ledgers import MARKUP, StoredSweep, dev_front, random_trials, write_ledger, write_run_with_markup


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
    folder = run.folder
    write.write(folder)
    text, page = read_page(folder)
    assert page.links and all(link.startswith("data:image/png;base64,") for link in page.links)
    assert not {"script", "link", "iframe", "object", "embed", "base"} & set(page.tags)
    assert not re.search(r"https?://|url\(|@import", text)
    assert "prefers-color-scheme: dark" in text


def test_text_of_the_run_is_escaped(tmp_path):
    write_run_with_markup(tmp_path)
    write.write(tmp_path)
    text, page = read_page(tmp_path)
    assert "script" not in page.tags and "<script" not in text
    assert any(MARKUP in shown for shown in page.shown)


def test_sweep_without_any_trial_reports(tmp_path):
    write_ledger(tmp_path, [], StoredSweep(reference=False, oracle=False, finish=None))
    write.write(tmp_path)
    assert "No trial was proposed." in (tmp_path / "report" / "report.html").read_text()


def test_a_thousand_trials_fold_their_table(tmp_path):
    trials = random_trials(1200)
    write_ledger(tmp_path, trials, StoredSweep(test_of=dev_front(trials[:20])))
    write.write(tmp_path)
    text, page = read_page(tmp_path)
    assert "<details>" in text and "<details open>" not in text
    assert page.tags.count("tr") > 1200
