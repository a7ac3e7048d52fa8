"""A comparison of runs as pandas data frames and a figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysweep.api.run_results import Picture
from raysweep.report.side_by_side_texts import as_json

if TYPE_CHECKING:
    import pandas as pd

    from raysweep.report.side_by_side import SideBySide


class RunComparison:
    """A comparison of runs on the same data, returned by :func:`raysweep.compare_runs`.

    A run's ``label`` is the end of its path or URI. Scores and hypervolumes are in [0, 1].
    """

    def __init__(self, comparison: SideBySide) -> None:
        self._comparison = comparison
        self._values = as_json(comparison)

    def __repr__(self) -> str:
        return f"RunComparison of {' and '.join(self._labels)}"

    @property
    def runs(self) -> pd.DataFrame:
        """Return a row per run.

        Columns: ``label``, ``run``, ``status``, ``num_trials``, and ``dev_hypervolume`` and
        ``test_hypervolume`` for the compared splits. Hypervolumes are NaN for runs without a front.
        """
        import pandas as pd

        rows = []
        for run in self._values["runs"]:
            areas = {f"{split}_hypervolume": area for split, area in run["hypervolume"].items()}
            rows.append(
                {**{key: run[key] for key in ("label", "run", "status", "num_trials")}, **areas}
            )
        frame = pd.DataFrame(rows)
        return frame.astype(
            {column: "float64" for column in frame if column.endswith("_hypervolume")}
        )

    @property
    def fronts(self) -> pd.DataFrame:
        """Return ``label``, ``split``, ``point`` and the scores of each front member on each split."""
        import pandas as pd

        rows = []
        for run in self._values["runs"]:
            for split, points in run["front"].items():
                rows += [{"label": run["label"], "split": split, **point} for point in points]
        return pd.DataFrame(rows)

    @property
    def differences(self) -> pd.DataFrame:
        """Return the difference in hypervolume between each run and the first one, by split.

        ``estimate`` is the hypervolume of ``label`` minus that of ``other``. ``low`` and ``high``
        are simultaneous confidence bounds at ``level``. ``over`` is the source of noise that they
        account for, such as queries. If the bounds are NaN, ``why_no_interval`` gives the reason.
        """
        import pandas as pd

        rows = []
        for difference in self._values["differences"]:
            low, high = difference["interval"] or (float("nan"), float("nan"))
            values = {key: value for key, value in difference.items() if key != "interval"}
            rows.append({**values, "low": low, "high": high})
        columns = (
            "split",
            "label",
            "other",
            "estimate",
            "low",
            "high",
            "level",
            "over",
            "why_no_interval",
        )
        return pd.DataFrame(rows, columns=list(columns))

    @property
    def dominations(self) -> pd.DataFrame:
        """Return the dominated front points, with a row per split and ordered pair of runs.

        ``names`` are the points on the front of ``other`` that the front of ``label`` dominates.
        ``num_points`` is the size of the front of ``other``.
        """
        import pandas as pd

        return pd.DataFrame(
            self._values["dominations"], columns=["split", "label", "other", "names", "num_points"]
        )

    @property
    def settings(self) -> pd.DataFrame:
        """Return the settings that differ between the runs, with a column per run."""
        return self._values_by_run("settings")

    @property
    def best_configurations(self) -> pd.DataFrame:
        """Return each run's best point and the parameters in which the best points differ."""
        return self._values_by_run("best_configurations")

    @property
    def notes(self) -> list[str]:
        """Return notes on the comparison, such as reasons for missing intervals."""
        return list(self._values["notes"])

    def figure(self) -> Picture:
        """Plot the fronts of all runs."""
        from raysweep.report.figures import comparison_figure

        return Picture(comparison_figure(self._comparison))

    def write(self, to: str | Path) -> None:
        """Write ``compare.html``, ``compare.md``, ``compare.json`` and ``compare.png`` to a folder.

        Raises:
            OSError: If the folder cannot be written.
        """
        from raysweep.report.write import write_comparison

        write_comparison(self._comparison, Path(to))

    @property
    def _labels(self) -> list[str]:
        return [run["label"] for run in self._values["runs"]]

    def _values_by_run(self, key: str) -> pd.DataFrame:
        import pandas as pd

        values: dict[str, list[Any]] = self._values[key]
        return pd.DataFrame(
            list(values.values()), index=list(values), columns=self._labels, dtype=object
        )
