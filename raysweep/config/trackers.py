"""Settings for experiment trackers."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from raysweep.config.strict import StrictModel
from raysweep.storage import location


def _local_folder(folder: str) -> str:
    """Return the absolute path of a local folder. URIs are rejected because the clients cannot write to buckets."""
    if not folder or location.is_uri(folder):
        raise ValueError(f"is {folder!r}; allowed: a local folder")
    return location.absolute(folder)


def _without_password(uri: str) -> str:
    """Return the URI. Passwords are rejected because the URI is stored in the run's files."""
    if not uri:
        raise ValueError(
            "is empty; allowed: an MLflow tracking URI, such as http://host:5000 or sqlite:///mlflow.db"
        )
    if urlsplit(uri).password:
        raise ValueError(
            "contains a password; set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead"
        )
    return uri


LocalFolder = Annotated[str, AfterValidator(_local_folder)]

Project = Annotated[str, Field(min_length=1, max_length=120)]


class TensorBoardConfig(StrictModel):
    """TensorBoard event files, in one folder per trial."""

    folder: LocalFolder | None = Field(
        None,
        description="folder in which to create the run's subfolder; the run's own tensorboard folder if not given",
    )


class MLflowConfig(StrictModel):
    """An MLflow run for the sweep, with a nested run for each trial, in one experiment."""

    uri: Annotated[str, AfterValidator(_without_password)] | None = Field(
        None,
        description="tracking URI; if not given, MLFLOW_TRACKING_URI or, if unset, mlflow.db next to the runs",
    )
    project: Project | None = Field(
        None, description="experiment name; the sweep's name if not given"
    )


class WandbConfig(StrictModel):
    """A Weights & Biases run for each trial, in one group."""

    project: Project | None = Field(None, description="project name; the sweep's name if not given")
    mode: Literal["offline", "online"] = Field(
        "offline",
        description="offline: write files for wandb sync; online: send data while the sweep runs, using the "
        "wandb login key",
    )
    folder: LocalFolder | None = Field(
        None,
        description="folder in which the client creates its wandb folder; the runs folder if not given",
    )


class TrackioConfig(StrictModel):
    """A Trackio run for each trial, in one group, in the folder or space set by TRACKIO_DIR or TRACKIO_SPACE_ID."""

    project: Project | None = Field(None, description="project name; the sweep's name if not given")


class TrackersConfig(StrictModel):
    """Experiment trackers.

    They record a run for each trial, a step for each rung, and the final front. Their failures never stop a sweep.
    """

    tensorboard: TensorBoardConfig | None = Field(None, description="TensorBoard; off if not given")
    mlflow: MLflowConfig | None = Field(None, description="MLflow; off if not given")
    wandb: WandbConfig | None = Field(None, description="Weights & Biases; off if not given")
    trackio: TrackioConfig | None = Field(None, description="Trackio; off if not given")

    @property
    def named(self) -> tuple[str, ...]:
        """Return the names of the enabled trackers."""
        return tuple(name for name in TRACKERS if getattr(self, name) is not None)


TRACKERS = tuple(TrackersConfig.model_fields)


SETTINGS: Mapping[str, tuple[str, ...]] = {
    "tensorboard": tuple(TensorBoardConfig.model_fields),
    "mlflow": tuple(MLflowConfig.model_fields),
    "wandb": tuple(WandbConfig.model_fields),
    "trackio": tuple(TrackioConfig.model_fields),
}
"""The keys of each tracker."""


def _expand_names(value: Any) -> Any:
    """Convert a list of names to a mapping of trackers with default settings."""
    if isinstance(value, list):
        for name in value:
            if name not in TRACKERS:
                raise ValueError(
                    f"contains {name!r}; allowed: {', '.join(TRACKERS)}, or a mapping of these names to settings"
                )
        return {name: {} for name in value}
    return value


Trackers = Annotated[TrackersConfig, BeforeValidator(_expand_names)]
