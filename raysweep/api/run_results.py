"""A run's results as pandas data frames and figures."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from raysweep.metrics.scores import STANDARD
from raysweep.output import counted
from raysweep.results.reader import load
from raysweep.results.types import Calibration, Measure, Point, Rung, ScoredSplit, Trial, flat_point
from raysweep.results.views import score_columns
from raysweep.storage import location
from raysweep.storage.folder import Folder

if TYPE_CHECKING:
    import pandas as pd

    from raysweep.report.choice import Candidate
    from raysweep.report.summary import Summary

_POINT_TYPES = {"trial": "Int64", "step": "Int64", "width": "Int64"}
ENCODER = ("trial", "step", "kind", "value", "width")
MARKS = ("is_knee", "is_best", "is_feasible")
SPLITS: tuple[ScoredSplit, ...] = get_args(ScoredSplit)
FRONT_COLUMNS = (
    "point",
    *(f"{split}_{score}" for split in SPLITS for score in STANDARD),
    *(*ENCODER, "encoders", *MARKS, "objective"),
)


@dataclass(frozen=True)
class Picture:
    """A PNG figure that notebooks can display."""

    png: bytes

    def __repr__(self) -> str:
        return f"Picture of {len(self.png):,} bytes; save(PATH) writes it"

    def save(self, path: str | Path) -> None:
        """Write the figure as PNG, regardless of the suffix."""
        Path(path).write_bytes(self.png)

    def _repr_png_(self) -> bytes:
        return self.png


class RunResults:
    """A snapshot of a run's results.

    Scores are in [0, 1] in data frames, and x100 in figures and reports.

    Raises:
        InputError: If the folder does not contain a run, or if the run is damaged.
    """

    def __init__(self, run: Folder) -> None:
        self.run = run
        self._stored = load(run)

    def __repr__(self) -> str:
        trials = counted(len(self._stored.trials), "trial")
        return f"RunResults({self.location!r}): {self.status}, {trials}"

    @property
    def location(self) -> str:
        """Return the run's path or URI."""
        return self.run.location

    @property
    def folder(self) -> Path:
        """Return the run's local folder, or the local copy of a run in an object store."""
        return self.run.path

    @property
    def status(self) -> str:
        """Return ``completed``, ``running``, ``interrupted``, ``budget``, ``plateau`` or ``failed``.

        The status of a killed run is ``running``.
        """
        return self._stored.status

    @property
    def front(self) -> pd.DataFrame:
        """Return a row per member of the front on dev, by decreasing similarity.

        Columns:

        - ``point``: the name to pass to :func:`raysweep.export_point`
        - ``dev_...`` and ``test_...``: polarity, similarity, retention, accuracy and other scores;
          NaN if not measured
        - ``trial``, ``step``, ``kind``, ``value`` and ``width`` of the encoder
        - ``encoders``: the number of encoders that embed a query
        - ``is_knee``, ``is_best`` (by the objective) and ``is_feasible`` (meets the constraints)
        - ``objective``: the objective on dev
        - ``guard_...``: guard scores
        - ``config_...``: the trial's parameters
        """
        from raysweep.report.choice import candidates_of

        return self._choice_frame(
            candidates_of(self._summary, everything=False) if self._summary.members else ()
        )

    def choose(
        self,
        where: str | Sequence[str] = (),
        *,
        best: str | None = None,
        top: int | None = None,
        knee: bool = False,
        everything: bool = False,
    ) -> pd.DataFrame:
        """Return the points that meet the conditions, best first, like ``raysweep show``.

        Args:
            where: One or more conditions, such as ``"P >= 85"``, ``"kind = concat"`` or
                ``"width <= 384"``. Scores are on dev, x100 or in [0, 1].
            best: Return the point with the highest value of this score: ``polarity`` (or ``P``),
                ``similarity`` (or ``S``), ``retention``, ``accuracy``, ``objective`` or, if the run
                has it, ``ranking``, ``agreement`` or ``watched``.
            top: Return this many points, ranked by ``best`` or, if it is not given, by the objective.
            knee: Return only the best-balanced point.
            everything: Choose from all operating points, not only from the front. Only points on
                the front can be exported.

        Returns:
            The columns of :attr:`front`, ``is_on_front``, and the bounds of 90% intervals over
            queries, such as ``dev_polarity_low`` and ``dev_polarity_high``. The bounds are NaN
            without per-query scores.

        Raises:
            InputError: If a condition or score is invalid, or if no trial has finished a rung.
        """
        from raysweep.report.choice import Selection, choose, finite_bounds

        conditions = (where,) if isinstance(where, str) else where
        candidates = choose(
            self._summary, Selection(conditions, best, top, knee, everything)
        ).candidates
        frame = self._choice_frame(candidates)
        frame["is_on_front"] = [candidate.member is not None for candidate in candidates]
        for split in SPLITS:
            points = [candidate.on(split) for candidate in candidates]
            bounds = [
                {} if point is None else finite_bounds(self._summary, point) or {}
                for point in points
            ]
            for name in self._summary.goals.written_scores:
                intervals = [of_point.get(name) or (math.nan, math.nan) for of_point in bounds]
                frame[f"{split}_{name}_low"] = [low for low, _ in intervals]
                frame[f"{split}_{name}_high"] = [high for _, high in intervals]
        return frame

    @property
    def points(self) -> pd.DataFrame:
        """Return all operating points, including the reference encoder, the oracle and the baselines.

        Columns: ``trial`` and ``step`` (missing for points without a trial), ``kind``, ``value``,
        ``split``, ``width``, ``polarity``, ``similarity``, ``retention``, ``accuracy``, the
        standard deviations of polarity and similarity over queries, other scores, and ``label``,
        which identifies SetFit models and published scores.
        """
        return _point_frame(self._stored.points)

    @property
    def labeled_points(self) -> pd.DataFrame:
        """Return the points that use the pool's labels; :attr:`points` excludes them."""
        return _point_frame(self._stored.labeled)

    @property
    def data_set_points(self) -> pd.DataFrame:
        """Return the points for each data set in a sequence; :attr:`points` excludes them.

        The columns are ``data_set`` and those of :attr:`points`.
        """
        names = self._stored.info.tasks
        points = self._stored.tasks
        frame = _point_frame(points)
        frame.insert(0, "data_set", [names[int(point.value or 1) - 1] for point in points])
        return frame

    @property
    def trials(self) -> pd.DataFrame:
        """Return a row per trial: ``trial``, ``status``, ``reason``, costs, and its parameters as ``config_...``.

        ``num_rungs`` is the maximum number of rungs. A stopped trial has fewer rows in :attr:`rungs`.
        """
        import pandas as pd

        trials = self._stored.trials
        parameters = pd.DataFrame([_prefixed(trial.config) for trial in trials])
        return _frame(Trial, trials).drop(columns="config").join(parameters)

    @property
    def rungs(self) -> pd.DataFrame:
        """Return a row per rung.

        Columns: ``trial``, ``step``, ``examples_seen``, ``seconds`` since the trial started, and the mean ``loss``.
        """
        return _frame(Rung, self._stored.rungs)

    @property
    def calibrations(self) -> pd.DataFrame:
        """Return the calibration of softmax heads by rung and split.

        The columns include the temperature, the cross-entropy and the calibration error.
        ``cross_entropy_before`` and ``error_before`` are the values before temperature scaling. On
        test, only rungs on the front have rows.
        """
        return _frame(Calibration, self._stored.calibrations)

    @property
    def measures(self) -> pd.DataFrame:
        """Return measures such as the average precision of pairs, by rung and split.

        Columns: ``trial`` and ``step`` (missing for the reference encoder), ``split``, ``name``,
        ``value``, the interval bounds ``low`` and ``high``, and ``curve``, the precision at evenly
        spaced recall levels. On test, only rungs on the front have rows.
        """
        return _frame(Measure, self._stored.measures)

    def front_figure(self) -> Picture:
        """Plot P against S for all points, the front, the reference, the oracle and the baselines."""
        from raysweep.report.figures import front_figure

        return Picture(front_figure(self._summary))

    def progress_figure(self) -> Picture:
        """Plot each trial's objective against the number of training examples seen."""
        from raysweep.report.figures import progress_figure

        return Picture(progress_figure(self._summary))

    def write_report(self, to: str | Path | None = None) -> str:
        """Write the report to the run, or to the folder ``to``, and return the path of ``report.html``."""
        from raysweep.report.write import write

        written = write(self.run, None if to is None else Path(to))
        return location.join(written.location, "report.html")

    @cached_property
    def _summary(self) -> Summary:
        from raysweep.report.summary import summary_of

        return summary_of(self.run, self._stored)

    def _choice_frame(self, candidates: Sequence[Candidate]) -> pd.DataFrame:
        import pandas as pd

        names = dict.fromkeys([*STANDARD, *self._summary.score_names])
        rows = []
        for candidate in candidates:
            point = candidate.dev
            row: dict[str, Any] = {"point": point.name}
            for split in SPLITS:
                point_on_split = candidate.on(split)
                for name in names:
                    score = None if point_on_split is None else point_on_split.get(name)
                    row[f"{split}_{name}"] = math.nan if score is None else score
            row |= {name: getattr(point, name) for name in ENCODER}
            row["encoders"] = point.num_encoders
            row |= {name: getattr(candidate, name) for name in MARKS}
            row["objective"] = candidate.objective
            row |= {f"guard_{name}": score.score for name, score in candidate.guards.items()}
            rows.append(row | _prefixed(candidate.config))
        return pd.DataFrame(rows, columns=None if rows else list(FRONT_COLUMNS))


def _point_frame(points: Sequence[Point]) -> pd.DataFrame:
    import pandas as pd

    scores = dict.fromkeys(score_columns(points), "float64")
    columns = [
        field.name for field in dataclasses.fields(Point) if field.name not in ("scores", "label")
    ]
    frame = pd.DataFrame(
        [flat_point(point) for point in points], columns=[*columns, *scores, "label"]
    )
    return frame.astype({**_POINT_TYPES, **scores})


def _frame(kind: type, records: Sequence[Any]) -> pd.DataFrame:
    """Return a row per record of a dataclass; without records, the frame still has all columns."""
    import pandas as pd

    columns = [field.name for field in dataclasses.fields(kind)]
    return pd.DataFrame(
        [[getattr(record, name) for name in columns] for record in records], columns=columns
    )


def _prefixed(config: Mapping[str, Any]) -> dict[str, Any]:
    return {f"config_{name}": value for name, value in config.items()}
