"""Soft targets against hard ones: the effect of each rule of `targets` on classes, similarity and encoder geometry.

One trial of a fixed configuration is trained for each seed and rule. All rules share the split, the mined pairs and, by
seed, the order of examples. The tuned encoder alone is scored on test (the plain point): P, S, average precision of pairs
of neighbors, divergence from the untuned encoder, and nDCG@10 on retrieval data. The experts are MiniLM, MiniLM pooled by
its first token, and static embeddings from MiniLM's word table; see `examples/static_expert.py`. The configuration is that
of Lu et al. 2024 (arXiv:2408.11868): batches of 64, learning rate 3e-5.
Intervals are 90% bootstrap intervals over sentences (for nDCG@10, over queries), paired between rules.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import measure, sst2
from raysweep.metrics import pairs as pair_measures
from raysweep.uncertainty.pairs import draw_weights
from raysweep.uncertainty.resamples import Resamples

RULES = ("hard", "soft1", "soft2", "soft3", "soft3_inner")
UNTUNED = "untuned"
CONFIG = {"loss": "cosine_similarity", "learning_rate": 3e-5, "batch_size": 64}
NUM_EXAMPLES = 12_800
QUICK_EXAMPLES = 128
EXPERTS = ("demo", "raysweep-experts/first-token", "raysweep-experts/static")
LEVEL = 0.9

MEASURES = ("P", "S", "AP", "KL", "nDCG@10")
SCALES = {"P": 100, "S": 100, "AP": 100, "KL": 1, "nDCG@10": 100}
PUBLISHED: Mapping[str, Sequence[str]] = {
    "AP": ("soft1", "hard", "soft2", UNTUNED),
    "KL": ("hard", "soft1", "soft2"),
    "nDCG@10": ("soft1", "soft2", UNTUNED, "hard"),
}
"""The rules in the order of the paper's results, from high to low."""

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Estimate:
    """A measure of a rule, or its difference from hard targets: a mean over seeds with its interval."""

    rule: str
    measure: str
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        digits = 3 if self.measure == "KL" else 2
        return f"{self.value:.{digits}f} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


def main() -> None:
    arguments = _arguments()
    with measure.workplace() as temporary:
        machine = measure.machine()
        folder = arguments.artifacts or temporary
        encoded = dict(_measure(arguments, folder))
    estimates = list(_estimates(encoded))
    differences = list(_differences(encoded)) if "hard" in arguments.rules else []
    print(f"\n{_summary(estimates, differences)}\n")
    measured = {estimate.measure for estimate in estimates}
    for name, published in PUBLISHED.items():
        if name in measured:
            print(_compare_order(name, published, estimates))
    figures = {
        "examples": _num_examples(arguments),
        "seeds": arguments.seeds,
        "estimates": [asdict(estimate) for estimate in estimates],
        "differences": [asdict(difference) for difference in differences],
    }
    measure.finish("soft_targets", figures, machine, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = measure.parser("benchmarks.soft_targets", __doc__)
    measure.artifacts_option(parser)
    parser.add_argument("--seeds", nargs="+", type=int, help="default: 0 1 2; with --quick 0")
    parser.add_argument(
        "--rules", nargs="+", choices=RULES, default=list(RULES), help="default: all of them"
    )
    parser.add_argument("--examples", type=int, help=f"pairs a trial; default: {NUM_EXAMPLES}")
    parser.add_argument(
        "--retrieval", help="source of retrieval data; default: trecqa_dev.jsonl with the data"
    )
    parser.add_argument(
        "--results", type=Path, help="folder for each trial's results, from which a run resumes"
    )
    arguments = parser.parse_args()
    arguments.seeds = arguments.seeds or ([0] if arguments.quick else [0, 1, 2])
    return arguments


def _num_examples(arguments: argparse.Namespace) -> int:
    return arguments.examples or (QUICK_EXAMPLES if arguments.quick else NUM_EXAMPLES)


def _measure(
    arguments: argparse.Namespace, folder: Path
) -> Iterator[tuple[tuple[str, int], Arrays]]:
    """Yield the rule, the seed and the arrays of the untuned encoder and of every trial."""
    results = (arguments.results or folder / "results").resolve()
    for needed in (folder, results):
        needed.mkdir(parents=True, exist_ok=True)
    size = f"{'quick' if arguments.quick else 'all'}-{_num_examples(arguments)}"
    jobs = [(UNTUNED, 0), *((rule, seed) for seed in arguments.seeds for rule in arguments.rules)]
    files = {job: results / f"{size}-{job[0]}-{job[1]}.npz" for job in jobs}
    missing = [job for job in jobs if not files[job].exists()]
    if missing:
        for (rule, seed), arrays in _train(arguments, folder, missing):
            temporary = files[rule, seed].with_suffix(".tmp.npz")
            np.savez_compressed(temporary, allow_pickle=False, **dict(arrays))
            temporary.replace(files[rule, seed])
            values = [
                f"{name} {SCALES[name] * _value(name, arrays):.4g}" for name in _measured([arrays])
            ]
            print(f"{rule}, seed {seed}: {', '.join(values)}", flush=True)
    for job in jobs:
        with np.load(files[job]) as stored:
            yield job, dict(stored)


def _train(
    arguments: argparse.Namespace, folder: Path, jobs: Sequence[tuple[str, int]]
) -> Iterator[tuple[tuple[str, int], Arrays]]:
    import torch

    from raysweep.config.trial import trial_config
    from raysweep.evaluation.pair_measures import PairSet
    from raysweep.prepare.build import prepare_here
    from raysweep.training.trainer import Training
    from raysweep.training.workbench import Workbench

    data = sst2.locate(arguments.data)
    if arguments.quick:
        data = sst2.part(data, folder, 500, 100)
    subprocess.run(
        [sys.executable, measure.ROOT / "examples" / "static_expert.py"], cwd=folder, check=True
    )
    experts = [name if name == "demo" else str((folder / name).resolve()) for name in EXPERTS]
    config, space = sst2.sweep(
        data,
        folder / "artifacts",
        loss="cosine_similarity",
        examples={"target": 50_000, "experts": experts},
    )
    threads = torch.get_num_threads()
    prepared = prepare_here(config, space)
    torch.set_num_threads(threads)  # preparing takes all cores
    active_sets = prepared.scores_artifacts["train"].summary["active_sets"]
    print("active sets: " + ", ".join(f"{share:.1%}" for share in active_sets), flush=True)
    bench = Workbench(prepared, config.evaluation)
    evaluation = bench.test if bench.shown_split == "test" else bench.dev
    pairs = PairSet.of(prepared, evaluation)  # type: ignore[arg-type]  # labeled sentences
    retrieval = _Retrieval(_retrieval_source(arguments))

    def arrays_of(before: npt.NDArray[Any] | None) -> dict[str, npt.NDArray[Any]]:
        encoded = bench.encode(evaluation)
        scores = bench.measure(evaluation, [("plain", None)], encoded)["plain", None]
        embeddings = bench.both_sides(evaluation, encoded)
        after = pairs.random_cosines(embeddings)
        return {
            "P": scores["polarity"],
            "S": scores["similarity"],
            "nDCG@10": retrieval.measure(bench.model),
            "neighbors": pairs.neighbors,
            "same_class": pairs.same_class,
            "cosines": pairs.neighbor_cosines(embeddings),
            "random": pairs.random,
            "before": after if before is None else before,
            "after": after,
        }

    bench.reset()
    untuned = arrays_of(None)
    for rule, seed in jobs:
        if rule == UNTUNED:
            yield (rule, seed), untuned
            continue
        trial = trial_config(
            {**CONFIG, "targets": rule, "examples_per_rung": _num_examples(arguments)}
        )
        training = Training(trial, bench, seed, num_rungs=1)
        while not training.rung_is_full:
            training.step()
        yield (rule, seed), arrays_of(untuned["after"])


def _retrieval_source(arguments: argparse.Namespace) -> str | None:
    """Return the source of retrieval data, or None if there is none."""
    if arguments.retrieval is not None:
        return str(arguments.retrieval)
    default = os.environ.get("RAYSWEEP_DATA_DIR", measure.ROOT.parent / "shared" / "data")
    data = Path(default) if arguments.data is None else arguments.data.parent
    file = data / "retrieval" / "trecqa_dev.jsonl"
    return str(file) if file.exists() else None


class _Retrieval:
    """Retrieval data on which an encoder's nDCG@10 is measured."""

    def __init__(self, source: str | None) -> None:
        from raysweep.data.relation_sources import RelationSettings, read_all

        self.relations = [] if source is None else read_all([(source, RelationSettings())])

    def measure(self, model: Any) -> npt.NDArray[np.float64]:
        """Return the nDCG@10 of each query, (queries,), under a model that uses no prompts."""
        from raysweep.encoders import encoder
        from raysweep.metrics.ranking import RANKING_MEASURES, Ranking

        scores = []
        for relations in self.relations:
            embeddings = encoder.embed_texts(model, relations.sentences, "")
            cosines = (embeddings[relations.first] * embeddings[relations.second]).sum(
                axis=1, dtype=np.float64
            )
            ranking = Ranking.of(
                cosines, relations.is_positive, relations.group, relations.num_groups
            )
            scores.append(RANKING_MEASURES["nDCG@10"](ranking))
        return np.concatenate(scores) if scores else np.empty(0)


def _measured(trials: Sequence[Arrays]) -> list[str]:
    """Return the names of the measures that trials have."""
    return [name for name in MEASURES if name in ("AP", "KL") or len(trials[0][name])]


def _value(name: str, arrays: Arrays) -> float:
    if name == "AP":
        return pair_measures.average_precision(arrays["same_class"], arrays["cosines"])
    if name == "KL":
        return pair_measures.cosine_divergence(arrays["before"], arrays["after"])
    return float(arrays[name].mean())


def _resampled(name: str, arrays: Arrays) -> npt.NDArray[np.float64]:
    """Return the measure in each resample, the same for every trial."""
    if name == "AP":
        blocks = [
            pair_measures.weighted_average_precision(
                arrays["same_class"], arrays["cosines"], weights
            )
            for weights in draw_weights(arrays["neighbors"], 0)
        ]
        return np.concatenate(blocks)
    if name == "KL":
        rows = (row for weights in draw_weights(arrays["random"], 0) for row in weights)
        return np.array(
            [
                pair_measures.cosine_divergence(arrays["before"], arrays["after"], row)
                for row in rows
            ]
        )
    scores = np.stack([arrays[name], arrays[name]])[None]
    return Resamples(scores.shape[-1], seed=0).means(scores)[:, 0, 0]


def _by_rule(encoded: Mapping[tuple[str, int], Arrays]) -> dict[str, list[Arrays]]:
    """Return the trials of each rule."""
    trials: dict[str, list[Arrays]] = {}
    for (rule, _), arrays in encoded.items():
        trials.setdefault(rule, []).append(arrays)
    return trials


def _estimate(rule: str, name: str, value: float, resampled: npt.NDArray[np.float64]) -> Estimate:
    """Return an estimate with its percentile interval, shifted by the bias of the resamples."""
    low, high = (
        np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) - resampled.mean() + value
    )
    return Estimate(rule, name, *(SCALES[name] * float(number) for number in (value, low, high)))


def _estimates(encoded: Mapping[tuple[str, int], Arrays]) -> Iterator[Estimate]:
    """Yield the mean over seeds of each rule's measures."""
    for rule, trials in _by_rule(encoded).items():
        for name in _measured(trials):
            value = float(np.mean([_value(name, arrays) for arrays in trials]))
            resampled = np.mean([_resampled(name, arrays) for arrays in trials], axis=0)
            yield _estimate(rule, name, value, resampled)


def _differences(encoded: Mapping[tuple[str, int], Arrays]) -> Iterator[Estimate]:
    """Yield the mean over seeds of each rule's difference from hard targets, on the same resamples."""
    by_rule = _by_rule(encoded)
    hard = by_rule.pop("hard")
    for rule, trials in by_rule.items():
        for name in _measured(trials):
            value = np.mean([_value(name, arrays) for arrays in trials]) - np.mean(
                [_value(name, arrays) for arrays in hard]
            )
            resampled = np.mean([_resampled(name, arrays) for arrays in trials], axis=0)
            resampled_hard = np.mean([_resampled(name, arrays) for arrays in hard], axis=0)
            yield _estimate(rule, name, float(value), resampled - resampled_hard)


def _summary(estimates: Sequence[Estimate], differences: Sequence[Estimate]) -> str:
    tables = []
    for title, rows in (("targets", estimates), ("minus hard", differences)):
        names = list(dict.fromkeys(estimate.measure for estimate in rows))
        cells = {(estimate.rule, estimate.measure): str(estimate) for estimate in rows}
        rules = list(dict.fromkeys(estimate.rule for estimate in rows))
        tables.append(
            measure.table(
                (title, *names), [[rule, *(cells[rule, name] for name in names)] for rule in rules]
            )
        )
    return "\n\n".join(tables)


def _compare_order(name: str, published: Sequence[str], estimates: Sequence[Estimate]) -> str:
    """Return a line with the published order of rules and ours."""
    values = {estimate.rule: estimate.value for estimate in estimates if estimate.measure == name}
    known = [rule for rule in published if rule in values]
    ours = sorted(known, key=lambda rule: -values[rule])
    verdict = "the same" if ours == known else "another"
    return f"{name}: published {' > '.join(known)}; here {' > '.join(ours)} ({verdict} order)"


if __name__ == "__main__":
    main()
