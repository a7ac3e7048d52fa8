"""A run as a recorded table, which :mod:`raysweep.recorded` reads."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysweep.errors import InputError
from raysweep.replicates import averaged
from raysweep.results import Results, varied_parameters

if TYPE_CHECKING:
    import pandas as pd


def write(results: Results, path: Path) -> int:
    """Write a run as a table; how many trials it holds. InputError when the suffix is unknown or no rung is done."""
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"{path}: unsupported suffix ({path.suffix or 'none'}); a table ends in .csv or .parquet")
    frame = frame_of(results)
    try:
        if path.suffix == ".csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_parquet(path, index=False, compression="zstd")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    return int(frame["trial"].nunique())


def frame_of(results: Results) -> "pd.DataFrame":
    """A run's dev points as a table; of a configuration with replicates the means. InputError when no rung is done."""
    import pandas as pd

    if not results.rungs:
        raise InputError(f"{results.folder}: no rung is done, so there is nothing to record")
    configs = {trial.trial: trial.config for trial in results.trials}
    names = varied_parameters(results.trials)
    rungs = {(rung.trial, rung.step): rung for rung in results.rungs}
    rows = []
    for point in averaged(results):
        if point.split != "dev" or point.kind == "oracle":
            continue
        row: dict[str, Any] = {"trial": point.trial}
        if point.trial is not None and point.step is not None:
            rung = rungs[point.trial, point.step]
            row |= {name: configs[point.trial].get(name) for name in names}
            row |= {"examples_seen": rung.examples_seen, "seconds": round(rung.seconds, 3)}
        scores = {"polarity": round(point.polarity, 6), "similarity": round(point.similarity, 6)}
        rows.append({**row, "kind": point.kind, "value": point.value, **scores})
    frame = pd.DataFrame(rows).astype({"trial": "Int64", "examples_seen": "Int64"})
    for name in names:  # whole numbers, where some trials lack them
        if all(type(config.get(name)) in (int, type(None)) for config in configs.values()):
            frame[name] = frame[name].astype("Int64")
    columns = ["trial", *names, "examples_seen", "seconds", "kind", "value", "polarity", "similarity"]
    return frame[columns]
