"""SetFit on SST-2 with MiniLM: the setfit package, its first phase as a raysweep trial, and the published row.

625 sentences a class are drawn by chance (``examples: {neighbours: random, k: 20, anchors_per_class: 625}``). Each is paired
with 20 of its class and 20 of the other, 50,000 pairs in all. raysweep trains on these pairs for one epoch: loss
cosine_similarity, batches of 32, AdamW, learning rate 2e-5 with 10% warm-up. The package gets the same sentences, pairs them
itself (20 iterations), does the same, which is its first phase, and then trains encoder and head together for 5 epochs
(learning rates 3e-5 and 1e-2, weight decay 0.01). These are the settings of the published training code.

Both train in fp32, in processes of their own: first the package's first phase, then raysweep's trial, then the package's
second phase. The package's time includes making pairs, the trial's its evaluation on dev; what raysweep prepared before is
in a row of its own, and serves all trials on these sentences.

Scored are the rows of the test split against the published pool of training rows, k = 16, uniform rank weights. Intervals
are 95% bootstrap intervals over queries. Each row is one training on one draw of sentences, whose noise is not in them:
--seed draws others. The published sentences were drawn without a seed.
"""

import argparse
import importlib.metadata
import importlib.util
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from benchmarks import measure, peers, sst2
from benchmarks.peers import Peer

if TYPE_CHECKING:
    from raysweep.metrics.retrieval import Scores
    from raysweep.results.types import Point

RESAMPLES = 2000
SCORES = ("polarity", "similarity")

HEADER = ("", "P", "std", "95%", "S", "std", "95%", "accuracy", "minutes")


def main() -> None:
    arguments = _arguments()
    if importlib.util.find_spec("setfit") is None:
        print("error: the package setfit is not installed: pip install 'raysweep[setfit]'", file=sys.stderr)
        sys.exit(2)
    with measure.workplace() as temporary:
        found = measure.machine()
        peers.preload(found["device"])
        figures = _run(arguments, temporary, "cpu" if found["device"] == "cpu" else "cuda")
    measure.finish("setfit_peer", figures, found, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = measure.parser("benchmarks.setfit_peer", __doc__)
    measure.artifacts_option(parser)
    parser.add_argument("--per-class", type=int, help="labelled sentences of each class; 625, with --quick 16")
    parser.add_argument("--iterations", type=int, help="pairs of each kind that begin with a sentence; 20, --quick 4")
    parser.add_argument("--seed", type=int, default=0, help="of the sentences, the pairs and both trainings; 0")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="a new folder to save the package's model in")
    arguments = parser.parse_args()
    arguments.per_class = arguments.per_class or (16 if arguments.quick else 625)
    arguments.iterations = arguments.iterations or (4 if arguments.quick else 20)
    if arguments.keep is not None and arguments.keep.exists():
        parser.error(f"--keep {arguments.keep}: exists already")
    return arguments


@dataclass(frozen=True)
class Row:
    """One encoder: its per-query scores, and the seconds that its training took."""

    name: str
    scores: "Scores"
    seconds: float = 0.0

    def figures(self) -> dict[str, Any]:
        """For the line of JSON; scores x100."""
        values: dict[str, Any] = {"seconds": self.seconds}
        for score in SCORES:
            by_query = self._by_query(score)
            values[score] = {**_mean_and_interval(by_query), "std": float(by_query.std())}
        values["accuracy"] = float(self._by_query("accuracy").mean())
        return values

    def less(self, other: "Row") -> dict[str, Any]:
        """The mean paired differences to another encoder."""
        return {score: _mean_and_interval(self._by_query(score) - other._by_query(score)) for score in SCORES}

    def less_published(self, published: "Point") -> dict[str, Any]:
        """The differences to published means. Of these no query's score is known, so the intervals are this row's."""
        means = {score: 100 * getattr(published, score) for score in SCORES}
        return {score: _mean_and_interval(self._by_query(score) - means[score]) for score in SCORES}

    def cells(self) -> list[str]:
        """As in the table."""
        found = self.figures()
        cells = [self.name]
        for score in SCORES:
            values = found[score]
            cells += [f"{values['mean']:.2f}", f"{values['std']:.2f}", f"[{values['low']:.2f}, {values['high']:.2f}]"]
        return [*cells, f"{found['accuracy']:.2f}", f"{self.seconds / 60:.1f}" if self.seconds else ""]

    def _by_query(self, score: str) -> npt.NDArray[np.float64]:
        by_query: npt.NDArray[np.float64] = 100 * getattr(self.scores, score)
        return by_query


def _mean_and_interval(by_query: npt.NDArray[np.float64]) -> dict[str, float]:
    """The mean over queries and its bootstrap 95% interval."""
    drawn = np.random.default_rng(0).integers(len(by_query), size=(RESAMPLES, len(by_query)))
    low, high = np.quantile(by_query[drawn].mean(axis=1), [0.025, 0.975])
    return {"mean": float(by_query.mean()), "low": float(low), "high": float(high)}


def _run(arguments: argparse.Namespace, temporary: Path, device: str) -> dict[str, Any]:
    from benchmarks import setfit_training
    from benchmarks.setfit_training import Task

    data = sst2.locate(arguments.data)
    if arguments.quick:
        data = sst2.part(data, temporary, 2000, 200)
    published = _published(data)
    began = time.perf_counter()
    prepared = peers.apart(
        setfit_training.prepare,
        data,
        arguments.artifacts or temporary / "artifacts",
        arguments.per_class,
        arguments.iterations,
        arguments.seed,
    )
    prepare_seconds = time.perf_counter() - began
    scoring = peers.apart(setfit_training.Scoring.of, data, device)
    task = Task(prepared, scoring, arguments.iterations, arguments.seed, device)
    num_sentences = len(task.sentences)
    print(f"{data.name}: {num_sentences:,} sentences, {task.num_pairs:,} pairs, seed {arguments.seed}", flush=True)

    package = Peer("setfit", setfit_training.package, task, arguments.keep or temporary / "setfit")
    ours = Peer("raysweep", setfit_training.ours, task)
    said = peers.side_by_side([package, ours], patient=arguments.patient)
    after_first, after_second = package.result
    first_seconds, second_seconds = (turn.seconds for turn in package.turns)
    rows = [
        Row("MiniLM, untrained", scoring.evaluation.reference_scores),
        Row("setfit, first phase", after_first, first_seconds),
        Row("raysweep, first phase", ours.result, ours.turns[0].seconds),
        Row("setfit, both phases", after_second, first_seconds + second_seconds),
    ]
    figures: dict[str, Any] = {"data": data.name, "sentences": num_sentences, "pairs": task.num_pairs}
    figures |= {"seed": arguments.seed, "prepare_seconds": prepare_seconds}
    figures |= {"rows": {row.name: row.figures() for row in rows}}
    figures |= {"peers": {peer.name: peer.figures() for peer in (package, ours)}, "versions": _versions()}
    figures |= _compare(rows, published)
    print(f"raysweep's prepare, once for all trials on these sentences: {prepare_seconds / 60:.1f} minutes\n{said}")
    _, first, trial, _ = rows
    figures |= {"ratio": first.seconds / trial.seconds, "ratio_of": [trial.name, first.name]}
    print(f"\nratio: {figures['ratio']:.2f} (pairs a second: {trial.name} over {first.name})")
    return figures


def _published(data: sst2.Data) -> "Point | None":
    """The published SetFit row, where the queries are those that it was measured on."""
    from raysweep.evaluation.published_scores import TABLES

    table = TABLES["sst2"]
    if not table.measured_on(text for text, _ in sst2.rows(data.test, "test")):
        return None
    (row,) = (point for point in table.points("test") if point.label == f"{table.model}, SetFit")
    return row


def _compare(rows: Sequence[Row], published: "Point | None") -> dict[str, Any]:
    """Print the table and what follows from it; figures of the latter."""
    _, first, trial, both = rows
    cells = [row.cells() for row in rows]
    differences = {f"{trial.name} less {first.name}": trial.less(first)}
    if published is not None:
        numbers = (100 * getattr(published, name) for score in SCORES for name in (score, f"{score}_std"))
        polarity, polarity_std, similarity, similarity_std = (f"{number:.1f}" for number in numbers)
        cells.append(["SetFit, published", polarity, polarity_std, "", similarity, similarity_std, "", "", ""])
        differences[f"{both.name} less published"] = both.less_published(published)
    print(f"\n{measure.table(HEADER, cells)}\n")
    for name, each in differences.items():
        print(f"{name}: P {_signed(each['polarity'])}, S {_signed(each['similarity'])}")
    return {"differences": differences}


def _signed(difference: Mapping[str, float]) -> str:
    return f"{difference['mean']:+.2f} [{difference['low']:+.2f}, {difference['high']:+.2f}]"


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("setfit", "sentence-transformers", "transformers")}


if __name__ == "__main__":
    main()
