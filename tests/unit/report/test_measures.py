"""Measures of pairs in the report's table, figure and files."""

import dataclasses
import json
from pathlib import Path

import pyarrow.parquet
import pytest

import raysweep
from raysweep.report import write
from raysweep.report.measures import curves, measure_table
from raysweep.results.events import PointsScored, RungFinished, TrialStarted
from raysweep.results.ledger import Ledger
from raysweep.results.types import Measure
from support.ledgers import point, start_session

CURVE = (1.0, 0.8, 0.75, 0.5)
AREA = Measure(None, None, "dev", "average_precision", 0.8, curve=CURVE)
KL = Measure(None, None, "dev", "divergence", 0.25)


def of_rung(measure: Measure, trial: int, step: int, **changes: object) -> Measure:
    return dataclasses.replace(measure, trial=trial, step=step, **changes)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run of two trials of two rungs, of which only the last rung of trial 0 is on the front."""
    ledger = Ledger(tmp_path)
    ledger.append(start_session(tmp_path))
    ledger.append(PointsScored(points=(), measures=(AREA,)))
    for trial, polarity in ((0, 0.7), (1, 0.6)):
        ledger.append(
            TrialStarted(
                trial=trial, config={"loss": "cosine_similarity", "margin": trial}, num_rungs=2
            )
        )
        for step in (1, 2):
            rung = {
                "trial": trial,
                "step": step,
                "examples_seen": 64 * step,
                "seconds": 1.0,
                "loss": 0.3,
                "stop": None,
            }
            measures = (
                of_rung(AREA, trial, step, value=0.6 + 0.1 * trial),
                of_rung(KL, trial, step, value=0.1 * step),
            )
            points = (point(trial, step, polarity + 0.01 * step, 0.4 + 0.01 * step),)
            ledger.append(RungFinished(**rung, points=points, measures=measures))
    on_test = of_rung(KL, 0, 2, split="test", value=0.3, low=0.25, high=0.4)
    ledger.append(PointsScored(points=(), measures=(on_test,)))
    ledger.close()
    return tmp_path


def test_table_has_the_reference_the_last_rungs_and_the_front(run: Path) -> None:
    summary = write.write(run).summary
    table = measure_table(summary)
    assert table.columns == ("trial", "step", "configuration", "dev AP", "dev KL", "test KL")
    rows = [row[:2] + row[3:] for row in table.rows]
    assert rows == [
        ("reference", "–", "80.00", "–", "–"),  # noqa: RUF001 (the sign of an empty cell)
        ("0", "2", "60.00", "0.2000", "0.3000 [0.2500, 0.4000]"),
        ("1", "2", "70.00", "0.2000", "–"),  # noqa: RUF001
    ]
    assert curves(summary, "dev") == {"reference": CURVE, "trial 0, rung 2": CURVE}
    assert "| 60.00 | 0.2000 | 0.3000 " in (run / "report" / "front.md").read_text()
    page = (run / "report" / "report.html").read_text()
    assert "0.3000" in page
    assert 'alt="Precision against recall of neighbor pairs"' in page


def test_files_and_frames_have_every_measure(run: Path) -> None:
    write.write(run)
    rows = json.loads((run / "report" / "measures.json").read_text())
    frame = raysweep.load_run(run).measures
    table = pyarrow.parquet.read_table(run / "report" / "measures.parquet").to_pylist()
    assert len(rows) == len(frame) == len(table) == 1 + 4 * 2 + 1
    assert rows[0] == {**vars(AREA), "curve": list(CURVE)}
    assert table[-1] == {
        "trial": 0,
        "step": 2,
        "split": "test",
        "name": "divergence",
        "value": 0.3,
        "low": 0.25,
        "high": 0.4,
    }
    assert frame.iloc[-1]["high"] == 0.4
    assert (run / "report" / "pairs.png").read_bytes().startswith(b"\x89PNG")


def test_runs_without_experts_have_no_such_files(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.append(start_session(tmp_path))
    ledger.close()
    written = {file.name for file in write.write(tmp_path).files}
    assert not written & {"measures.json", "measures.parquet", "pairs.png"}
    assert "Pairs" not in (tmp_path / "report" / "front.md").read_text()
