"""Measure the untuned encoders on watched data, once per sweep."""

import io
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from raysweep.config.sides import Tower
from raysweep.config.sweep import EncoderConfig
from raysweep.config.watch import At
from raysweep.data.prepared import Prepared
from raysweep.encoders import encoder
from raysweep.encoders.loaded import LoadedEncoder
from raysweep.errors import InputError
from raysweep.evaluation.measures import Measured
from raysweep.evaluation.watched import (
    MeasuredRelations,
    WatchedRelations,
    measure_untuned,
    warn_of_untested,
    watched_encoder,
)
from raysweep.metrics.closeness import GEOMETRIES
from raysweep.results.query_scores import read_archive
from raysweep.storage.folder import Folder
from raysweep.terminal import Display
from raysweep.training.watching import WatchTask

FILE = "watch/untuned.npz"

REFERENCE = "reference"


@dataclass
class Untuned:
    """The closeness of watched pairs under the reference encoder and each tower's base model.

    ``FILE`` in the run's folder stores an array per encoder, set and geometry, and a digest of the relations. If
    ``is_new``, stored values with a different digest are replaced.

    Raises:
        InputError: If the watched data has changed since the run began.
    """

    run: Folder
    relations: WatchedRelations
    prepared: Prepared
    display: Display
    is_new: bool = False

    def __post_init__(self) -> None:
        self._values: dict[str, MeasuredRelations] = {}
        # a damaged file is ignored
        try:
            (content,) = self.run.read([FILE])
            arrays = read_archive(content)
            digest = arrays.pop("digest").tobytes().decode()
            names = {name.partition("/")[0] for name in arrays}
            values = (
                {name: self._unpack(name, arrays) for name in names}
                if digest == self.relations.digest
                else {}
            )
        except (FileNotFoundError, ValueError, KeyError):
            return
        if digest != self.relations.digest and not self.is_new:
            raise InputError(
                f"{self.run.location}: the watched data (watch) has changed since this sweep ran; start a new sweep "
                f"(--warm-start {self.run.location} reuses the trials of this one)"
            )
        self._values = values

    def task(self, at: At) -> WatchTask:
        """Return the task with which workers measure trials on watched data."""
        towers = {tower: self._values[tower] for tower in get_args(Tower) if tower in self._values}
        return WatchTask(self.relations, towers, at)

    @property
    def reference_score(self) -> float:
        """Return the reference encoder's ``watched`` score."""
        return self.relations.score(self._values[REFERENCE])

    def measure(self, towers: Iterable[Tower]) -> None:
        """Measure the values of the reference encoder and each base model that are not stored yet."""
        prepared = self.prepared
        model, reference = EncoderConfig(**prepared.model), EncoderConfig(**prepared.reference)
        encoders = {
            REFERENCE: (watched_encoder(reference, reference, "both"), prepared.reference_identity)
        }
        for tower in towers:
            encoders[tower] = watched_encoder(model, reference, tower), prepared.model_identity
        missing = {name: encoders[name] for name in encoders if name not in self._values}
        if not missing:
            return
        import torch

        began = time.monotonic()
        measured: dict[tuple[EncoderConfig, str], MeasuredRelations] = {}
        for name, (config, identity) in missing.items():
            key = config.model_copy(update={"name": "", "revision": None}), identity
            if key not in measured:
                loaded = LoadedEncoder.load(config, identity=identity, device=encoder.best_device())
                _, measured[key] = measure_untuned(loaded, self.relations.relations, self.display)
                del loaded
                if torch.cuda.is_available():  # trials need the memory
                    torch.cuda.empty_cache()
            self._values[name] = measured[key]
        self._store()
        seconds = time.monotonic() - began
        num_sets = len(self.relations.relations)
        self.display.line(
            f"run: watched data measured with the untuned encoders (sets={num_sets}, seconds={seconds:.0f})"
        )
        warn_of_untested(self.relations, self._values[REFERENCE], self.display)

    def _unpack(self, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> MeasuredRelations:
        return [
            {
                geometry: Measured(relations, arrays[f"{name}/{number}/{geometry}"])
                for geometry in GEOMETRIES
            }
            for number, relations in enumerate(self.relations.relations)
        ]

    def _store(self) -> None:
        digest = self.relations.digest.encode()
        arrays: dict[str, npt.NDArray[Any]] = {"digest": np.frombuffer(digest, np.uint8)}
        for name, values in self._values.items():
            for number, by_geometry in enumerate(values):
                for geometry, measured in by_geometry.items():
                    arrays[f"{name}/{number}/{geometry}"] = measured.closeness
        sink = io.BytesIO()
        np.savez_compressed(sink, allow_pickle=False, **arrays)
        self.run.keep(FILE, sink.getvalue())
