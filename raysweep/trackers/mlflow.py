"""MLflow tracker: one run per trial, identified by its tags."""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raysweep.results.types import TrialStatus
from raysweep.trackers.tracker import FRONT, FrontPage, Step, TrackedTrial, Tracker

RUN, TRIAL, STATUS, REASON = "raysweep.run", "raysweep.trial", "raysweep.status", "raysweep.reason"  # tags

MAX_CHARACTERS = 500  # length limit for parameters and tags that every MLflow version accepts

ENDINGS = {
    TrialStatus.COMPLETED: "FINISHED",
    TrialStatus.STOPPED: "KILLED",
    TrialStatus.FAILED: "FAILED",
}
"""MLflow's statuses for ended trials. Trials that may still be resumed have the status RUNNING."""


class MLflowTracker(Tracker):
    """Tracker that writes to the experiment ``project`` on a tracking server or in a local database.

    ``artifacts`` is the location where a new experiment stores its files; if None, the server chooses it.
    """

    def __init__(self, uri: str | None, project: str, run: str, artifacts: Path | None = None) -> None:
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
        self._runs = self._find_runs()  # run ids, keyed by trial tag
        self._last_steps: dict[str, int] = {}  # keyed by run id

    def _find_runs(self) -> dict[str, str]:
        """Return the run ids from earlier sessions, keyed by trial tag."""
        run_ids: dict[str, str] = {}
        query = f"tags.`{RUN}` = '{self._run}'"
        token: str | None = None
        while True:
            page = self._client.search_runs([self._experiment], query, max_results=1000, page_token=token)
            for run in page:
                trial = run.data.tags[TRIAL]
                run_ids[trial] = run.info.run_id
            token = page.token
            if not token:
                return run_ids

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
        run_id = self._create_run(key, trial.name)
        self._runs[key] = run_id
        self._last_steps[run_id] = 0
        parameters = [Param(name, _truncate(value)) for name, value in trial.settings.items()]
        self._client.log_batch(run_id, params=parameters)
        return run_id

    def _create_run(self, key: str, name: str) -> str:
        tags = {RUN: self._run, TRIAL: key}
        run: Any = self._client.create_run(self._experiment, tags=tags, run_name=f"{self._run} {name}")
        return str(run.info.run_id)

    def log_status(self, trial: TrackedTrial) -> None:
        run_id = self._run_of(trial)
        self._client.set_tag(run_id, STATUS, str(trial.status))
        self._client.set_tag(run_id, REASON, _truncate(trial.reason))
        if trial.is_over:
            self._client.set_terminated(run_id, ENDINGS[trial.status])

    def log_front(self, front: FrontPage) -> None:
        if FRONT not in self._runs:
            self._runs[FRONT] = self._create_run(FRONT, FRONT)
        run_id = self._runs[FRONT]
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder, "front.md")
            table.write_bytes(front.markdown.encode())
            picture = Path(folder, "front.png")
            picture.write_bytes(front.png)
            self._client.log_artifacts(run_id, folder)
        self._log_metrics(run_id, front.metrics, step=0)
        self._client.set_terminated(run_id, "FINISHED")


def _truncate(value: Any) -> str:
    return str(value)[:MAX_CHARACTERS]
