"""The rows of the benchmark ``search_quality``."""

import hashlib
import importlib
import logging
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np
import optuna

from benchmarks.search_peers import listed, optuna_peers
from benchmarks.search_peers.ray_tune import Halved
from raysweep.config.sweep import EarlyStoppingConfig, ObjectiveConfig, SweepConfig
from raysweep.replay.recordings import RecordedSweep
from raysweep.replay.simulator import Peer, Search, SearchSettings

ROOT = Path(__file__).parents[2]

MANY_SEEDS, FEW_SEEDS = 50, 10

SLOW_SECONDS = 0.2  # a proposal: peers that take longer play few seeds and one worker

HALVING = 2  # reduction factor of ASHA for searches that stop no trial

Kind = Literal["own", "outside", "base"]
Make = Callable[[RecordedSweep, int], Peer]


@dataclass(frozen=True)
class Entry:
    """A row of the benchmark. ``make`` starts a search of a recording with a seed; None if ``missing`` names a missing
    package.

    ``library`` is the package whose version identifies the result. ``is_slow`` was measured: more than SLOW_SECONDS per
    proposal. A row with ``needs_rungs`` repeats another row on recordings without rungs.
    """

    name: str
    make: Make | None
    kind: Kind = "outside"
    library: str = "raysweep"
    module: str = ""
    is_slow: bool = False
    is_seeded: bool = True
    needs_rungs: bool = False
    missing: str = ""

    @cached_property
    def code(self) -> str:
        """Return a digest of the code that a result of this row depends on."""
        digest = hashlib.sha256()
        for path in self._sources():
            digest.update(path.read_bytes())
        if self.library != "raysweep":
            digest.update(metadata.version(self.library).encode())
        return digest.hexdigest()[:12]

    def _sources(self) -> list[Path]:
        replay = ROOT / "raysweep" / "replay"
        paths = [replay / "simulator.py", replay / "recordings.py"]
        packages = ["metrics", "search"] if self.kind == "own" else ["metrics"]
        for package in packages:
            paths += sorted((ROOT / "raysweep" / package).rglob("*.py"))
        if self.module:
            folder = Path(__file__).parent
            paths += [folder / f"{name}.py" for name in (self.module, "ray_tune", "shown", "flat")]
        return paths


def default_search() -> SearchSettings:
    """Return the settings of a sweep's file without keys of searching and stopping."""
    stopping = EarlyStoppingConfig.model_validate({})
    return SearchSettings(
        sampler=SweepConfig.model_fields["sampler"].default,
        policy=stopping.policy,
        proposals=ObjectiveConfig.model_fields["proposals"].default,
        reduction_factor=stopping.reduction_factor,
    )


def entries() -> list[Entry]:
    """Return every row; raysweep's default comes first."""
    return [
        _own("raysweep default", default_search()),
        _own("raysweep", SearchSettings("mfgp", "growth", "area")),
        _own("raysweep", SearchSettings("tpe", "growth", "area")),
        _own("raysweep", SearchSettings("random", "growth", "area")),
        _own("raysweep", SearchSettings("mfgp", "pareto", "area")),
        _own("raysweep", SearchSettings("tpe", "pareto", "area")),
        _own("raysweep", SearchSettings("mfgp", "growth", "parego")),
        *_optuna(),
        *_ray_tune(),
        *_syne_tune(),
        _other(
            "SMAC3 Hyperband, ParEGO", "smac", "smac_peer", lambda module: module.Smac, is_slow=True
        ),
        *_halved(
            _other(
                "BoTorch qLogNEHVI, P and S",
                "botorch",
                "botorch_peer",
                lambda module: module.QLogNehvi,
                is_slow=True,
            )
        ),
        _base("random", listed.shuffled),
        _base("grid", lambda recording, seed: listed.in_order(recording), is_seeded=False),
    ]


def _own(name: str, settings: SearchSettings) -> Entry:
    has_factor = settings.policy in ("pareto", "asha")
    factor = f" {settings.reduction_factor}" if has_factor else ""
    return Entry(
        f"{name}: {settings.policy}{factor}, {settings.sampler} on {settings.proposals}",
        lambda recording, seed: Search(recording, settings, seed),
        kind="own",
    )


def _base(
    name: str, order: Callable[[RecordedSweep, int], Sequence[int]], *, is_seeded: bool = True
) -> Entry:
    return Entry(
        name,
        lambda recording, seed: listed.Listed(recording, order(recording, seed)),
        kind="base",
        module="listed",
        is_seeded=is_seeded,
    )


def _optuna() -> list[Entry]:
    def two(
        name: str, make: Callable[[int], optuna.samplers.BaseSampler], *, is_slow: bool = False
    ) -> Entry:
        return Entry(
            f"Optuna {name}, P and S",
            lambda recording, seed: optuna_peers.OptunaTwoObjectives(recording, make(seed)),
            library="optuna",
            module="optuna_peers",
            is_slow=is_slow,
        )

    def pruned(
        name: str,
        make: Callable[[RecordedSweep], optuna.pruners.BasePruner],
        *,
        needs_rungs: bool = True,
    ) -> Entry:
        return Entry(
            f"Optuna TPE on area, {name}",
            lambda recording, seed: optuna_peers.OptunaPruned(
                recording, optuna_peers.multivariate_tpe(seed), make(recording)
            ),
            library="optuna",
            module="optuna_peers",
            needs_rungs=needs_rungs,
        )

    return [
        pruned(
            "HyperBand 2", lambda recording: optuna_peers.hyperband(recording, 2), needs_rungs=False
        ),
        pruned("HyperBand (3)", lambda recording: optuna_peers.hyperband(recording, 3)),
        pruned("halving 2", lambda recording: optuna_peers.halving(2)),
        *_halved(two("TPE", optuna_peers.multivariate_tpe)),
        two("NSGA-II", lambda seed: optuna.samplers.NSGAIISampler(seed=seed)),
        *_halved(two("GPSampler", lambda seed: optuna.samplers.GPSampler(seed=seed), is_slow=True)),
    ]


def _halved(entry: Entry) -> list[Entry]:
    """Return a row whose trials run to their ends, and one with Tune's ASHA."""
    if entry.make is None:
        return [entry]
    make = entry.make
    name = f"{entry.name}, ASHA {HALVING}"
    halved = replace(
        entry,
        name=name,
        make=lambda recording, seed: Halved(recording, make(recording, seed), HALVING),
    )
    return [entry, replace(halved, needs_rungs=True)]


def _ray_tune() -> list[Entry]:
    entries = []
    for name, factor in (("ASHA 2", 2), ("ASHA (4)", 4)):
        for aim, of in (("area", "on area"), ("sum", "on P + S")):
            make = _with(lambda module: module.Tune, factor, aim)
            row = _other(f"Ray Tune OptunaSearch {of}, {name}", "ray", "ray_tune", make)
            entries.append(replace(row, needs_rungs=factor != HALVING))
    return entries


def _syne_tune() -> list[Entry]:
    def peer(name: str, make: Callable[[Any], Make], *, is_slow: bool = False) -> Entry:
        return _other(f"Syne Tune {name}", "syne-tune", "syne_tune_peers", make, is_slow=is_slow)

    needs_rungs = partial(replace, needs_rungs=True)
    return [
        peer("BOHB on area, 2", _with(lambda module: module.bohb, 2)),
        needs_rungs(peer("BOHB on area, (3)", _with(lambda module: module.bohb, 3))),
        peer("MOASHA 2, ranks", lambda module: lambda recording, seed: module.moasha(recording, 2)),
        needs_rungs(
            peer(
                "MOASHA (3), ranks",
                lambda module: lambda recording, seed: module.moasha(recording, 3),
            )
        ),
        peer("regularized evolution, P and S", lambda module: module.regularized_evolution),
        peer("EHVI, P and S", lambda module: module.Ehvi, is_slow=True),
    ]


def _with(find: Callable[[Any], Callable[..., Peer]], *more: Any) -> Callable[[Any], Make]:
    """Return a maker of a peer with more arguments than recording and seed."""
    return lambda module: lambda recording, seed: find(module)(recording, seed, *more)


def _other(
    name: str, library: str, module: str, find: Callable[[Any], Make], *, is_slow: bool = False
) -> Entry:
    """Return a row whose library may be missing."""
    try:
        imported = importlib.import_module(f"benchmarks.search_peers.{module}")
    except ImportError as error:
        return Entry(
            name,
            None,
            library=library,
            is_slow=is_slow,
            missing=f"not installed ({error.name or library})",
        )
    return Entry(name, find(imported), library=library, module=module, is_slow=is_slow)


def seed_globals(seed: int) -> None:
    """Seed the global generators, which some libraries use, before a run."""
    np.random.seed(seed)
    random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)
        torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for name in ("ray.tune", "syne_tune"):
        logging.getLogger(name).setLevel(logging.ERROR)
