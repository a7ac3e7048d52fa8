"""Trackio tracker: one run per trial, in a group named after the sweep's run."""

import tempfile
from pathlib import Path
from typing import Any

from raysweep.trackers.tracker import FRONT, FrontPage, Step, TrackedTrial, Tracker


class TrackioTracker(Tracker):
    """Tracker that writes to Trackio's local database, or to a Hugging Face Space if the environment specifies one.

    Only one run is open at a time. A reopened run continues after its last step.
    """

    def __init__(self, project: str, run: str) -> None:
        self._project, self._run = project, run
        self._open: Any = None
        self._open_name = ""
        self._next_steps: dict[str, int] = {}  # keyed by run name

    def log_step(self, trial: TrackedTrial, step: Step) -> None:
        run = self._run_of(trial.name, trial.settings)
        if step.number >= self._next_steps[trial.name]:
            run.log(dict(step.metrics), step=step.number)
            self._next_steps[trial.name] = step.number + 1

    def log_status(self, trial: TrackedTrial) -> None:
        """Store the status of a trial that ended before its first step and therefore has no run.

        Other statuses are not stored, because Trackio runs have no status.
        """
        if trial.is_over and not trial.steps:
            run = self._run_of(trial.name, trial.settings)
            if self._next_steps[trial.name] == 0:
                run.log({"status": str(trial.status), "reason": trial.reason}, step=0)
                self._next_steps[trial.name] = 1

    def log_front(self, front: FrontPage) -> None:
        import pandas
        import trackio

        run = self._run_of(FRONT, {})
        with tempfile.TemporaryDirectory() as folder:
            picture = Path(folder, "front.png")
            picture.write_bytes(front.png)
            rows = list(front.rows)
            columns = list(front.columns)
            frame = pandas.DataFrame(rows, columns=columns)
            table = trackio.Table(dataframe=frame)
            image = trackio.Image(str(picture))
            values = {"front": table, "picture": image, **front.metrics}
            run.log(values, step=self._next_steps[FRONT])
            self._finish()

    def close(self) -> None:
        self._finish()

    def _run_of(self, name: str, settings: dict[str, Any]) -> Any:
        import trackio
        from trackio.sqlite_storage import SQLiteStorage

        if name != self._open_name:
            self._finish()
            self._open = trackio.init(
                project=self._project,
                name=f"{self._run} {name}",
                group=self._run,
                config=settings,
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
            self._open_name = name
            if name not in self._next_steps:
                last = SQLiteStorage.get_max_step_for_run(self._project, f"{self._run} {name}")
                self._next_steps[name] = 0 if last is None else int(last) + 1
        return self._open

    def _finish(self) -> None:
        if self._open is not None:
            import trackio

            trackio.finish()
        self._open, self._open_name = None, ""
