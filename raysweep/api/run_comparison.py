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
    """The comparison of several runs on the same data, from :func:`raysweep.compare_runs`.

    A run's ``label`` consists of the last parts of its location. Scores and hypervolumes are in [0, 1]. Each access
    creates a new data frame that the caller may modify.
    """

    def __init__(self, comparison: SideBySide) -> None:
        self._comparison = comparison
        self._values = as_json(comparison)

    def __repr__(self) -> str:
        return f"RunComparison of {' and '.join(self._labels)}"

    @property
    def runs(self) -> pd.DataFrame:
        """Return a row per run: ``label``, ``run``, ``status``, ``num_trials``, and a hypervolume per compared split.

        The hypervolumes, ``dev_hypervolume`` and ``test_hypervolume``, are relative to a common reference point and are
        NaN for a run without a front.
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
        """Return a row per front member on each compared split: ``label``, ``split``, ``point`` and its scores."""
        import pandas as pd

        rows = []
        for run in self._values["runs"]:
            for split, points in run["front"].items():
                rows += [{"label": run["label"], "split": split, **point} for point in points]
        return pd.DataFrame(rows)

    @property
    def differences(self) -> pd.DataFrame:
        """Return how much each run's hypervolume exceeds the first run's, on each split.

        ``estimate`` is the difference between ``label`` and ``other``, with an interval from ``low`` to ``high``; all
        intervals hold jointly with probability ``level``. ``over`` names the noise that the intervals account for, such as
        queries. The bounds are NaN if the runs have no per-query scores; ``why_no_interval`` then gives the reason.
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
        """Return the points on ``other``'s front that ``label``'s front dominates: ``names``, out of ``num_points``.

        There is a row for each split and each ordered pair of runs.
        """
        import pandas as pd

        return pd.DataFrame(
            self._values["dominations"], columns=["split", "label", "other", "names", "num_points"]
        )

    @property
    def settings(self) -> pd.DataFrame:
        """Return the settings that differ between the runs: a row per setting and a column per label."""
        return self._values_by_run("settings")

    @property
    def best_configurations(self) -> pd.DataFrame:
        """Return each run's best point by its objective and the parameters that differ, with a column per label."""
        return self._values_by_run("best_configurations")

    @property
    def notes(self) -> list[str]:
        """Return notes on the runs, on splits that were not compared and on missing intervals."""
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
