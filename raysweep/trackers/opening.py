"""Opens the configured trackers, and checks their packages and settings before the sweep starts."""

import os
import re
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

URI_VARIABLE = "MLFLOW_TRACKING_URI"
FOLDER_VARIABLE = "MLFLOW_ALLOW_FILE_STORE"
SERVER_OR_DATABASE = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*://|databricks|uc:")


@dataclass(frozen=True)
class Destination:
    """The folder of the run to track, which may be in a bucket, and the sweep's name."""

    run: Folder
    sweep: str

    @property
    def name(self) -> str:
        """Return the run's name, which is the last component of its location."""
        return location.base_name(self.run.location)


def check_trackers(config: TrackersConfig, runs: str) -> None:
    """Raise InputError if a tracker's extra is not installed or its destination is invalid.

    If ``runs`` is in a bucket, trackers that store data next to the run by default need an explicit destination.
    """
    packages.check(packages.needs_of_trackers(config))
    uri = None if config.mlflow is None else config.mlflow.uri or os.environ.get(URI_VARIABLE)
    if uri and not SERVER_OR_DATABASE.match(uri) and os.environ.get(FOLDER_VARIABLE) != "true":
        raise InputError(
            f"trackers.mlflow: uri is {uri!r}, a folder, which MLflow rejects; allowed: a server or a database, such as "
            f"sqlite:///mlflow.db; to use a folder, set {FOLDER_VARIABLE}=true in the environment"
        )
    if not location.is_uri(runs):
        return
    folder_trackers = {"tensorboard": config.tensorboard, "wandb": config.wandb}
    for name, settings in folder_trackers.items():
        if settings is not None and settings.folder is None:
            raise InputError(
                f"trackers.{name}: folder is not set; runs in {runs} need a folder on this machine"
            )
    if config.mlflow is not None and not _has_uri(config.mlflow):
        raise InputError(
            f"trackers.mlflow: uri is not set; runs in {runs} need a uri or {URI_VARIABLE}"
        )


def tracker_openers(config: TrackersConfig, to: Destination) -> dict[str, Callable[[], Tracker]]:
    """Return a function that opens each configured tracker, keyed by tracker name.

    These functions can be slow and can raise any error from the client.
    """
    openers: dict[str, Callable[[], Tracker]] = {}
    if config.tensorboard is not None:
        openers["tensorboard"] = partial(_open_tensorboard, config.tensorboard, to)
    if config.mlflow is not None:
        openers["mlflow"] = partial(_open_mlflow, config.mlflow, to)
    if config.wandb is not None:
        openers["wandb"] = partial(_open_wandb, config.wandb, to)
    if config.trackio is not None:
        openers["trackio"] = partial(_open_trackio, config.trackio, to)
    return openers


def _open_tensorboard(settings: TensorBoardConfig, to: Destination) -> Tracker:
    from raysweep.trackers.tensorboard import TensorBoardTracker

    if settings.folder is None:
        return TensorBoardTracker(_own_folder(to) / "tensorboard")
    return TensorBoardTracker(Path(settings.folder, to.name))


def _open_mlflow(settings: MLflowConfig, to: Destination) -> Tracker:
    from raysweep.trackers.mlflow import MLflowTracker

    project = settings.project or to.sweep
    if _has_uri(settings):
        return MLflowTracker(settings.uri, project, to.name)
    runs = _own_folder(to).parent
    uri = f"sqlite:///{runs / 'mlflow.db'}"
    return MLflowTracker(uri, project, to.name, artifacts=runs / "mlflow-artifacts")


def _has_uri(settings: MLflowConfig) -> bool:
    return settings.uri is not None or URI_VARIABLE in os.environ


def _open_wandb(settings: WandbConfig, to: Destination) -> Tracker:
    from raysweep.trackers.wandb import WandbTracker

    # The client creates links, which a run folder must not contain.
    folder = _own_folder(to).parent if settings.folder is None else Path(settings.folder)
    return WandbTracker(settings.project or to.sweep, to.name, folder, settings.mode)


def _open_trackio(settings: TrackioConfig, to: Destination) -> Tracker:
    from raysweep.trackers.trackio import TrackioTracker

    return TrackioTracker(settings.project or to.sweep, to.name)


def _own_folder(to: Destination) -> Path:
    """Return the run's folder, or raise InputError if the run is in a bucket."""
    if isinstance(to.run, BucketFolder):
        raise InputError(f"{to.run.location}: is in a bucket; set the tracker's folder or uri")
    return to.run.path.absolute()
