"""Figures of layouts: sizes and numbers."""

import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from raysweep.paper import figures
from raysweep.paper.layout import Layout
from raysweep.paper.layouts import by_examples, by_k, by_rung
from raysweep.paper.sources import read_run
from raysweep.storage.folder import LocalFolder
from support.tables import GRID, grid, write_run

KS = (4, 8, 16, 32, 64)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect the figures that are written as files."""
    collected: list[Any] = []
    png = figures.png

    def collect(figure: Any) -> bytes:
        collected.append(figure)
        return png(figure)

    monkeypatch.setattr(figures, "png", collect)
    return collected


def as_frame(scores: list[tuple[Any, ...]]) -> pd.DataFrame:
    frame = pd.DataFrame(scores, columns=["model", "rank_weights", "k", "polarity", "similarity"])
    return frame.assign(accuracy=float("nan"))


def is_wide_png(content: bytes) -> bool:
    return content[:8] == b"\x89PNG\r\n\x1a\n" and int.from_bytes(content[16:20], "big") >= 1500


def lines(axis: Any) -> list[tuple[list[float], list[float]]]:
    """Return the lines that have points."""
    return [
        (list(line.get_xdata()), list(line.get_ydata()))
        for line in axis.lines
        if len(line.get_xdata())
    ]


def figure_of(layout: Layout) -> bytes:
    assert layout.draw is not None
    return layout.draw()


def test_by_k(drawn: list[Any]) -> None:
    scores = [
        (model, kind, k, 60 + place + shift, 50 - place)
        for shift, model in enumerate(("m", "n"))
        for kind in ("uniform", "linear")
        for place, k in enumerate(KS)
    ]
    assert is_wide_png(figure_of(by_k(as_frame(scores))))
    uniform, linear = drawn[0].axes
    assert (uniform.get_title(loc="left"), linear.get_title(loc="left")) == (
        "uniform rank weights",
        "linear rank weights",
    )
    assert lines(uniform)[:2] == [
        (list(KS), [60, 61, 62, 63, 64]),
        (list(KS), [50, 49, 48, 47, 46]),
    ]
    assert list(uniform.get_xticks()) == list(KS)
    assert figure_of(by_k(as_frame(scores[:1]))), "a single point"


def test_by_examples(drawn: list[Any], tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / model, [*grid(), *grid(examples_per_rung=50)], model=model)
        for model in ("m", "n")
    ]
    layout = by_examples([read_run(LocalFolder(run)) for run in runs])
    assert is_wide_png(figure_of(layout))
    upper, lower = drawn[0].axes
    assert [label.get_text() for label in lower.get_xticklabels()] == ["50", "2,048"]
    best = max(scores[-1][0] for scores in GRID.values())
    assert max(y for _, ys in lines(upper) for y in ys) == pytest.approx(100 * best), (
        "whiskers reach the maximum"
    )
    medians = [
        ys
        for xs, ys in lines(upper)
        if xs[1] - xs[0] == pytest.approx(figures.BOX_WIDTH) and len(xs) == 2
    ]
    assert medians == [[pytest.approx(78)] * 2] * 2, "between 75 and 81"
    assert sum(len(points.get_offsets()) for points in upper.collections) == 2 * 2 * len(GRID)


def test_by_rung(drawn: list[Any], tmp_path: Path) -> None:
    runs = [write_run(tmp_path / model, grid(), model=model) for model in ("m", "n")]
    assert is_wide_png(figure_of(by_rung([read_run(LocalFolder(run)) for run in runs])))
    left, right, *_ = drawn[0].axes
    assert len(drawn[0].axes) == 4
    assert ([1, 2], [pytest.approx(72), pytest.approx(83)]) in lines(left)
    assert ([0, 1], [pytest.approx(63)] * 2) in lines(left), "the reference"
    assert ([1, 2], [pytest.approx(44), pytest.approx(36)]) in lines(right)
    assert "matplotlib.pyplot" not in sys.modules


def test_names_with_formulas_are_drawn_literally(drawn: list[Any]) -> None:
    name = r"$\nothing$"
    assert is_wide_png(figure_of(by_k(as_frame([(name, "uniform", k, 60.0, 40.0) for k in KS]))))
    assert name in [text.get_text() for text in drawn[0].legends[0].get_texts()]
