"""MLflow tracker: a parent run for the sweep, with a nested run for each trial. Tags identify the runs."""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raysweep.results.types import TrialStatus
from raysweep.trackers.tracker import FrontPage, Step, TrackedTrial, Tracker

# tag keys
RUN, TRIAL, STATUS, REASON = (
    "raysweep.run",
    "raysweep.trial",
    "raysweep.status",
    "raysweep.reason",
)
PARENT = "mlflow.parentRunId"  # MLflow's own tag for nested runs

MAX_CHARACTERS = 500  # length limit for parameters and tags that every MLflow version accepts

ENDINGS = {
    TrialStatus.COMPLETED: "FINISHED",
    TrialStatus.STOPPED: "KILLED",
    TrialStatus.FAILED: "FAILED",
}
"""MLflow's statuses for ended trials. Trials that can still be resumed are RUNNING until the sweep ends."""

RESUMABLE_ENDING = "KILLED"
"""MLflow's status, after the sweep ends, for trials that can still be resumed."""

SWEEP_ENDINGS = {"interrupted": "KILLED", "failed": "FAILED"}
"""MLflow's statuses for interrupted and failed sweeps; all other ended sweeps are FINISHED."""


class MLflowTracker(Tracker):
    """Tracker that writes to the experiment ``project`` on a tracking server or in a local database.

    The parent run contains the front and the sweep's status. ``artifacts`` is the folder for a new experiment's
    artifacts; if None, the server chooses the location.
    """

    def __init__(
        self, uri: str | None, project: str, run: str, artifacts: Path | None = None
    ) -> None:
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(tracking_uri=uri)
        self._run = run
        experiment = self._client.get_experiment_by_name(project)
        if experiment is not None:
            experiment_id = experiment.experiment_id
        else:
            location = None if artifacts is None else (artifacts / project).as_uri()
            experiment_id = self._client.create_experiment(project, artifact_location=location)
        self._experiment = str(experiment_id)
        self._runs: dict[str, str] = {}  # run ids of trials, keyed by trial tag
        self._last_steps: dict[str, int] = {}  # keyed by run id
        self._unfinished: set[str] = set()  # ids of trial runs with status RUNNING
        self._has_ended = False
        self._parent = self._find_runs()
        if self._parent:
            self._client.update_run(self._parent, status="RUNNING")
        else:
            self._parent = self._create_run(run, {})
        self._tag_status(self._parent, "running", "")

    def _find_runs(self) -> str:
        """Find the runs from earlier sessions. Return the parent run's id, or "" if it does not exist."""
        parent = ""
        query = f"tags.`{RUN}` = '{self._run}'"
        token: str | None = None
        while True:
            page = self._client.search_runs(
                [self._experiment], query, max_results=1000, page_token=token
            )
            for run in page:
                trial = run.data.tags.get(TRIAL)
                if trial is None:
                    parent = run.info.run_id
                else:
                    self._runs[trial] = run.info.run_id
                    if run.info.status == "RUNNING":  # the driver was killed
                        self._unfinished.add(run.info.run_id)
            token = page.token
            if not token:
                return parent

    def log_step(self, trial: TrackedTrial, step: Step) -> None:
        run_id = self._run_of(trial)
        last_steps = self._last_steps
        if run_id not in last_steps:  # a run from an earlier session
            history = self._client.get_metric_history(run_id, "examples_seen")
            logged_steps = [metric.step for metric in history]
            last_steps[run_id] = max(logged_steps, default=0)
        number = step.number
        if number > last_steps[run_id]:
            last_steps[run_id] = number
            if run_id not in self._unfinished:  # a resumed trial
                self._unfinished.add(run_id)
                self._client.update_run(run_id, status="RUNNING")
            self._log_metrics(run_id, step.metrics, number)

    def _log_metrics(self, run_id: str, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        milliseconds = round(1000 * time.time())
        metrics = [Metric(name, value, milliseconds, step) for name, value in values.items()]
        self._client.log_batch(run_id, metrics=metrics)

    def _run_of(self, trial: TrackedTrial) -> str:
        """Return the id of a trial's run, creating the run if it does not exist."""
        from mlflow.entities import Param

        key = str(trial.number)
        if key in self._runs:
            return self._runs[key]
        run_id = self._create_run(f"{self._run} {trial.name}", {TRIAL: key, PARENT: self._parent})
        self._runs[key] = run_id
        self._last_steps[run_id] = 0
        self._unfinished.add(run_id)
        parameters = [Param(name, _truncate(value)) for name, value in trial.settings.items()]
        self._client.log_batch(run_id, params=parameters)
        return run_id

    def _create_run(self, name: str, tags: Mapping[str, str]) -> str:
        run: Any = self._client.create_run(
            self._experiment, tags={RUN: self._run, **tags}, run_name=name
        )
        return str(run.info.run_id)

    def log_status(self, trial: TrackedTrial) -> None:
        run_id = self._run_of(trial)
        self._tag_status(run_id, str(trial.status), trial.reason)
        if trial.is_over:
            self._unfinished.discard(run_id)
            self._client.set_terminated(run_id, ENDINGS[trial.status])

    def _tag_status(self, run_id: str, status: str, reason: str) -> None:
        self._client.set_tag(run_id, STATUS, status)
        self._client.set_tag(run_id, REASON, _truncate(reason))

    def log_end(self, status: str, reason: str) -> None:
        self._has_ended = True
        self._tag_status(self._parent, status, reason)
        self._client.set_terminated(self._parent, SWEEP_ENDINGS.get(status, "FINISHED"))

    def close_trial(self, trial: TrackedTrial) -> None:
        run_id = self._runs.get(str(trial.number))
        if self._has_ended and run_id in self._unfinished:
            self._client.set_terminated(run_id, RESUMABLE_ENDING)

    def log_front(self, front: FrontPage) -> None:
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder, "front.md")
            table.write_bytes(front.markdown.encode())
            picture = Path(folder, "front.png")
            picture.write_bytes(front.png)
            self._client.log_artifacts(self._parent, folder)
        self._log_metrics(self._parent, front.metrics, step=0)


def _truncate(value: Any) -> str:
    return str(value)[:MAX_CHARACTERS]
