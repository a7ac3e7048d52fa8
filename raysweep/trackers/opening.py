"""From the configured trackers to open clients; missing clients and settings are reported before the sweep starts."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from raysweep.config import packages
from raysweep.config.trackers import (
    MLflowConfig,
    TensorBoardConfig,
    TrackersConfig,
    TrackioConfig,
    WandbConfig,
)
from raysweep.errors import InputError
from raysweep.storage import location
from raysweep.storage.folder import BucketFolder, Folder
from raysweep.trackers.tracker import Tracker


@dataclass(frozen=True)
class Destination:
    """The tracked run: its folder, wherever it is, and the sweep's name."""

    run: Folder
    sweep: str

    @property
    def name(self) -> str:
        """Return the run's own name."""
        return location.name_of(self.run.location)


def check(config: TrackersConfig, runs: str) -> None:
    """Raise InputError if a tracker's extra is not installed or its destination is missing.

    Runs in a bucket need an explicit destination.
    """
    packages.check(packages.needs_of_trackers(config))
    if not location.is_uri(runs):
        return
    if config.tensorboard is not None and config.tensorboard.folder is None:
        raise InputError(f"trackers.tensorboard: needs a folder of this machine, as runs are kept in {runs}")
    if config.wandb is not None and config.wandb.folder is None:
        raise InputError(f"trackers.wandb: needs a folder of this machine, as runs are kept in {runs}")
    if config.mlflow is not None and config.mlflow.uri is None and "MLFLOW_TRACKING_URI" not in os.environ:
        raise InputError(f"trackers.mlflow: needs a uri, or MLFLOW_TRACKING_URI, as runs are kept in {runs}")


def openers(config: TrackersConfig, to: Destination) -> dict[str, Callable[[], Tracker]]:
    """Return functions that open the configured trackers, by name.

    They may be slow and raise any error of the clients.
    """
    found: dict[str, Callable[[], Tracker]] = {}
    if config.tensorboard is not None:
        found["tensorboard"] = partial(_tensorboard, config.tensorboard, to)
    if config.mlflow is not None:
        found["mlflow"] = partial(_mlflow, config.mlflow, to)
    if config.wandb is not None:
        found["wandb"] = partial(_wandb, config.wandb, to)
    if config.trackio is not None:
        found["trackio"] = partial(_trackio, config.trackio, to)
    return found


def _tensorboard(settings: TensorBoardConfig, to: Destination) -> Tracker:
    from raysweep.trackers.tensorboard import TensorBoardTracker

    if settings.folder is None:
        return TensorBoardTracker(_own_folder(to) / "tensorboard")
    return TensorBoardTracker(Path(settings.folder, to.name))


def _mlflow(settings: MLflowConfig, to: Destination) -> Tracker:
    from raysweep.trackers.mlflow import MLflowTracker

    project = settings.project or to.sweep
    if settings.uri is not None or "MLFLOW_TRACKING_URI" in os.environ:
        return MLflowTracker(settings.uri, project, to.name)
    runs = _own_folder(to).parent
    return MLflowTracker(f"sqlite:///{runs / 'mlflow.db'}", project, to.name, artifacts=runs / "mlflow-artifacts")


def _wandb(settings: WandbConfig, to: Destination) -> Tracker:
    from raysweep.trackers.wandb import WandbTracker

    # Next to the run, because the client creates links, which a run folder must not contain.
    folder = _own_folder(to).parent if settings.folder is None else Path(settings.folder)
    return WandbTracker(settings.project or to.sweep, to.name, folder, settings.mode)


def _trackio(settings: TrackioConfig, to: Destination) -> Tracker:
    from raysweep.trackers.trackio import TrackioTracker

    return TrackioTracker(settings.project or to.sweep, to.name)


def _own_folder(to: Destination) -> Path:
    """Return the run's folder.

    Raises:
        InputError: If the run is in a bucket.
    """
    if isinstance(to.run, BucketFolder):
        raise InputError(f"{to.run.location}: lies in a bucket; name a folder, or a uri, for the tracker")
    return to.run.path.absolute()
