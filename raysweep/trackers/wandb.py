"""Weights & Biases tracker: one run per trial, in a group named after the sweep's run."""

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal

from raysweep.trackers.tracker import FRONT, FrontPage, Step, TrackedTrial, Tracker


class WandbTracker(Tracker):
    """Tracker whose runs have the same ids in every session.

    An online run is open while a worker trains its trial. If reopened, it continues after the last step on the server.
    Offline runs cannot be resumed. Each is written in full when its trial or the session ends, and replaces any earlier
    version.
    """

    def __init__(
        self, project: str, run: str, folder: Path, mode: Literal["offline", "online"]
    ) -> None:
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        self._project = project
        self._run = run
        self._folder = folder
        self._mode = mode
        self._open: dict[int, Any] = {}
        self._written: set[int] = set()
        self._settings = wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True
        )
        if mode == "online" and not wandb.login(prompt=False):
            raise RuntimeError("no API key; run wandb login or set WANDB_API_KEY")

    def log_step(self, trial: TrackedTrial, step: Step) -> None:
        if self._mode == "offline":
            return
        if trial.number not in self._open:
            self._open[trial.number] = self._init(trial.name, trial.settings)
        run = self._open[trial.number]
        if step.number >= run.step:  # skip steps that are already on the server
            run.log(dict(step.metrics), step=step.number)

    def log_status(self, trial: TrackedTrial) -> None:
        if self._mode == "offline":
            if trial.is_over:
                self._write_offline(trial)
            return
        run = self._open.pop(trial.number, None)
        if run is not None:
            _close(run, trial)

    def _write_offline(self, trial: TrackedTrial) -> None:
        run = self._init(trial.name, trial.settings)
        for step in trial.steps:
            run.log(dict(step.metrics), step=step.number)
        _close(run, trial)
        self._written.add(trial.number)

    def log_front(self, front: FrontPage) -> None:
        import wandb

        run = self._init(FRONT, {})
        with tempfile.TemporaryDirectory() as folder:
            picture = Path(folder, "front.png")
            picture.write_bytes(front.png)
            rows = [list(row) for row in front.rows]
            table = wandb.Table(columns=list(front.columns), data=rows)
            image = wandb.Image(str(picture))
            values = {"front": table, "picture": image, **front.metrics}
            run.log(values)
            run.finish()

    def close_trial(self, trial: TrackedTrial) -> None:
        if trial.number in self._open:
            _close(self._open.pop(trial.number), trial)
        elif self._mode == "offline" and trial.number not in self._written:
            self._write_offline(trial)

    def _init(self, name: str, settings: dict[str, Any]) -> Any:
        import wandb

        run_id = hashlib.sha256(f"{self._run}/{name}".encode()).hexdigest()[:24]
        if self._mode == "offline":
            for previous in (self._folder / "wandb").glob(f"offline-run-*-{run_id}"):
                shutil.rmtree(previous)
        return wandb.init(
            project=self._project,
            group=self._run,
            id=run_id,
            name=f"{self._run} {name}",
            config=settings,
            dir=self._folder,
            mode=self._mode,
            resume="allow" if self._mode == "online" else None,
            reinit="create_new",
            settings=self._settings,
        )


def _close(run: Any, trial: TrackedTrial) -> None:
    run.summary["status"] = str(trial.status)
    run.summary["reason"] = trial.reason
    run.finish()
