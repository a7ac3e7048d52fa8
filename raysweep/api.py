"""The public API: what ``import raysweep`` offers. Each function imports what it needs when it is called."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from raysweep.config import load
from raysweep.config.load import LoadedSweep
from raysweep.config.sweep import SAMPLERS


def load_sweep(space: str | Path, overrides: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> LoadedSweep:
    """A sweep by the name of a shipped space or by its file, under overrides of dotted keys.

    A value that is a string is read as YAML, as on the command line. Raises InputError that names file, line or key,
    value and what is allowed.
    """
    pairs = overrides.items() if isinstance(overrides, Mapping) else overrides
    texts = [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in pairs]
    loaded = load.load(load.find_space(str(space)), texts)
    if loaded.config.sampler not in SAMPLERS:  # Optuna takes its time to import
        from raysweep.search.proposer import check_sampler

        check_sampler(loaded)
    return loaded
