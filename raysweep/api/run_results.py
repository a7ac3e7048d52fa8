"""A run's stored results for Python: fronts and points as pandas frames, figures, the report."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysweep.results.reader import load
from raysweep.results.types import Calibration, Point, Rung, Trial
from raysweep.storage import location
from raysweep.storage.folder import Folder

if TYPE_CHECKING:
    import pandas as pd

    from raysweep.report.summary import Member, Summary

SCORES = ("polarity", "similarity", "retention", "accuracy")
_POINT_TYPES = {"trial": "Int64", "step": "Int64", "width": "Int64", "accuracy": "float64"}
ENCODER = ("trial", "step", "kind", "value", "width")
MARKS = ("is_knee", "is_best", "is_feasible")
FRONT_COLUMNS = ("point", *ENCODER, *MARKS, *(f"{split}_{score}" for split in ("dev", "test") for score in SCORES))


@dataclass(frozen=True)
class Picture:
    """A figure as PNG bytes. A notebook shows it as it is."""

    png: bytes

    def __repr__(self) -> str:
        return f"Picture of {len(self.png):,} bytes; save(PATH) writes it"

    def save(self, path: str | Path) -> None:
        """Write the figure to a file, whatever its suffix, as PNG."""
        Path(path).write_bytes(self.png)

    def _repr_png_(self) -> bytes:
        return self.png


class RunResults:
    """What a run has stored so far. Scores in frames lie in [0, 1]; figures and reports show them x100.

    Frames are made anew at each access, so a caller may change what it was given. Raises InputError where the folder holds
    no run, or a damaged one.
    """

    def __init__(self, run: Folder) -> None:
        self.run = run
        self._stored = load(run)

    def __repr__(self) -> str:
        return f"RunResults({self.location!r}): {self.status}, {len(self._stored.trials)} trials"

    @property
    def location(self) -> str:
        """Where the run is kept: a path or a URI."""
        return self.run.location

    @property
    def folder(self) -> Path:
        """Where the run's files are on this machine; of a run in an object store, those that were fetched."""
        return self.run.path

    @property
    def status(self) -> str:
        """``completed``, ``running`` (or killed), ``interrupted``, ``budget``, ``plateau`` or ``failed``."""
        return self._stored.status

    @property
    def front(self) -> pd.DataFrame:
        """The front that was chosen on dev, by falling similarity: a row a member.

        ``point`` is the name that :func:`raysweep.export_point` takes. ``trial``, ``step``, ``kind``, ``value`` and
        ``width`` say which encoder it is; ``is_knee``, ``is_best`` (of the objective) and ``is_feasible`` (meets the
        constraints) what marks it. ``dev_polarity``, ``dev_similarity``, ``dev_retention`` and ``dev_accuracy`` are its
        scores on dev; ``test_...`` those on test, NaN where it was not scored there. The trial's parameters follow as
        ``config_...``.
        """
        import pandas as pd

        rows = [self._front_row(member) for member in self._summary.members]
        return pd.DataFrame(rows, columns=None if rows else list(FRONT_COLUMNS))

    @property
    def points(self) -> pd.DataFrame:
        """Every operating point of every rung on every split, and those of the reference encoder, the oracle and baselines.

        Columns: ``trial`` and ``step`` (missing where no trial made the point), ``kind``, ``value``, ``split``, ``width``,
        ``polarity``, ``similarity``, ``retention`` and ``accuracy`` with the standard deviations over queries of the first
        two, and ``label``, which tells SetFit models and published scores apart.
        """
        return _frame(Point, self._stored.points).astype(_POINT_TYPES)

    @property
    def labelled_points(self) -> pd.DataFrame:
        """Points that are told the pool's labels, with the columns of :attr:`points`, which they are no part of."""
        return _frame(Point, self._stored.labelled).astype(_POINT_TYPES)

    @property
    def trials(self) -> pd.DataFrame:
        """A row a trial: ``trial``, ``status``, ``reason``, what it cost, and its parameters as ``config_...``.

        ``num_rungs`` are as many as it may have; what it had stands in :attr:`rungs`.
        """
        import pandas as pd

        trials = self._stored.trials
        parameters = pd.DataFrame([_prefixed(trial.config) for trial in trials])
        return _frame(Trial, trials).drop(columns="config").join(parameters)

    @property
    def rungs(self) -> pd.DataFrame:
        """A row a rung: ``trial``, ``step``, ``examples_seen``, ``seconds`` since the trial began, the mean ``loss``."""
        return _frame(Rung, self._stored.rungs)

    @property
    def calibrations(self) -> pd.DataFrame:
        """A row a rung and split of a softmax head: its ``temperature``, cross-entropy and calibration error.

        Those before the temperature are ``cross_entropy_before`` and ``error_before``. Test has the front's rungs alone.
        """
        return _frame(Calibration, self._stored.calibrations)

    def front_figure(self) -> Picture:
        """Polarity against similarity: every point, the front, the reference encoder, the oracle front, the baselines."""
        from raysweep.report.figures import front_figure

        return Picture(front_figure(self._summary))

    def progress_figure(self) -> Picture:
        """The objective of each trial against the training examples it has seen."""
        from raysweep.report.figures import progress_figure

        return Picture(progress_figure(self._summary))

    def write_report(self, to: str | Path | None = None) -> str:
        """Write the report into the run, as the command does, or into the folder ``to``; where its ``report.html`` is."""
        from raysweep.report.write import write

        written = write(self.run, None if to is None else Path(to))
        return location.join(written.location, "report.html")

    @cached_property
    def _summary(self) -> Summary:
        from raysweep.report.summary import summary_of

        return summary_of(self.run, self._stored)

    def _front_row(self, member: Member) -> dict[str, Any]:
        point = member.dev
        encoder = {name: getattr(point, name) for name in ENCODER}
        marks = {name: getattr(member, name) for name in MARKS}
        on_dev = {f"dev_{score}": _score(point, score) for score in SCORES}
        on_test = {f"test_{score}": _score(member.test, score) for score in SCORES}
        config = next(trial.config for trial in self._stored.trials if trial.trial == point.trial)
        return {"point": point.name, **encoder, **marks, **on_dev, **on_test, **_prefixed(config)}


def _score(point: Point | None, name: str) -> float:
    """NaN where it was not measured."""
    value: float | None = getattr(point, name, None)
    return float("nan") if value is None else value


def _frame(kind: type, records: Sequence[Any]) -> pd.DataFrame:
    """A row for each of these records of one dataclass; its fields are the columns, also where there is no record."""
    import pandas as pd

    columns = [field.name for field in dataclasses.fields(kind)]
    return pd.DataFrame([[getattr(record, name) for name in columns] for record in records], columns=columns)


def _prefixed(config: Mapping[str, Any]) -> dict[str, Any]:
    return {f"config_{name}": value for name, value in config.items()}
