"""Measure how often 90% intervals cover the truth, in simulated sweeps with known true scores.

Cases:

- ``queries``: 24 points of 6 encoders.
- ``2 runs`` and so on: queries and seeds, 8 configurations of 3 points each; the truth is a configuration's mean over seeds.
- ``selected``: 256 trials of 4 points each; the front is selected on dev, and its members are measured on test; the truth is
  that of the selected encoders.

The true hypervolume and oracle share are those of the same points at their true P and S. The three settings differ in
queries, k, spread of trials and noise. Scores are simulated (:mod:`benchmarks.simulated_scores`); the intervals are those
of a report.

Coverages are means over all members of all sweeps. For ``selected``, every fourth sweep also yields intervals from dev
itself, on which the front was selected, unchanged and corrected by nested resampling; that correction next to the true
effect of selection; and how many points of a given stability on dev truly are on the front. Stability does not estimate
that number.

In the last cases, the configurations of a sweep's front are trained several times, like replicates, and the front is then
selected from all runs. These cases yield intervals of hypervolume and share on dev, and on test, where only the front's
own runs are scored, and, for comparison, intervals over queries alone. The truth is that of the configurations over all
seeds.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks import measure, simulated_runs
from benchmarks.simulated_runs import SimulatedRun
from benchmarks.simulated_scores import Encoders, Queries, Setting, limits, trial_scores
from raysweep.metrics.arrays import Float64Array
from raysweep.metrics.hull import hull_area
from raysweep.metrics.pareto import hypervolume, non_dominated
from raysweep.metrics.scores import GOALS
from raysweep.results.types import ScoredSplit
from raysweep.uncertainty import configurations, front, selection
from raysweep.uncertainty.configurations import Replicated, Scored, SeedNoise, Trained
from raysweep.uncertainty.interval import Interval
from raysweep.uncertainty.many_fronts import memberships
from raysweep.uncertainty.noise import Noise

SPLITS: tuple[ScoredSplit, ...] = ("dev", "test")

LEVEL_RANGE = (0.87, 0.93)

SETTINGS = (
    Setting("872 queries, k 16", 872, 16, (0.63, 0.466), 0.27, 0.03, 0.02, 0.5, 0.08, 0.0015),
    Setting("300 queries, k 16", 300, 16, (0.55, 0.40), 0.35, 0.08, 0.05, 0.7, 0.15, 0.003),
    Setting("2,000 queries, k 8", 2000, 8, (0.75, 0.55), 0.18, 0.02, 0.005, 0.3, 0.05, 0.001),
)

STABILITIES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)

Measured = dict[str, list[float]]  # values of each quantity, sweep by sweep


def main() -> None:
    parser = measure.parser("benchmarks.calibration", __doc__)
    parser.add_argument(
        "--sweeps", type=int, help="of each case and setting: 1000; with --quick 12"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="seed of the simulation; figures are from a seed not tuned on",
    )
    names = ", ".join(f"{number} is {setting.name}" for number, setting in enumerate(SETTINGS))
    parser.add_argument(
        "--settings", type=int, nargs="*", default=range(len(SETTINGS)), help=f"only some: {names}"
    )
    parser.add_argument(
        "--cases",
        nargs="*",
        default=CASES,
        choices=CASES,
        metavar="CASE",
        help=f"only some of {CASES}",
    )
    arguments = parser.parse_args()
    sweeps = arguments.sweeps or (12 if arguments.quick else 1000)
    machine = measure.machine()
    rows: list[dict[str, Any]] = []
    stabilities: dict[str, list[Any]] = {}
    for setting in [SETTINGS[number] for number in arguments.settings]:
        for case in arguments.cases:
            measured, stability = play(case, setting, sweeps, arguments.seed)
            rows.append({"setting": setting.name, "case": case, **measured})
            print(_line(rows[-1]), flush=True)
            if stability:
                stabilities[setting.name] = stability
    for name, stability in stabilities.items():
        print(f"\n{name}: stability on dev, and how many of such points truly are on the front")
        print(measure.table(("stability", "points", "truly on the front"), stability))
    covered = [row[name] for row in rows for name in QUANTITIES if name in row]
    share = float(np.mean([LEVEL_RANGE[0] <= value <= LEVEL_RANGE[1] for value in covered]))
    print(f"\nratio: {share:.3f}, the part of {len(covered)} coverages within 87 to 93%")
    print(f"coverages from {100 * min(covered):.1f} to {100 * max(covered):.1f}%")
    figures = {
        "ratio": share,
        "sweeps": sweeps,
        "seed": arguments.seed,
        "rows": rows,
        "stability": stabilities,
    }
    measure.finish("calibration", figures, machine, arguments.json)


QUANTITIES = ("P", "S", "retention", "hypervolume", "share")
CASES = (
    "queries",
    "2 runs",
    "3 runs",
    "5 runs",
    "selected",
    "2 runs, selected",
    "3 runs, selected",
    "5 runs, selected",
)


def play(case: str, setting: Setting, sweeps: int, seed: int) -> tuple[dict[str, float], list[Any]]:
    """Return means over simulated sweeps of one case, and the rows of the stability table, only for ``selected``."""
    measured: Measured = defaultdict(list)
    stability: list[tuple[float, bool]] = []
    for index in range(sweeps):
        rng = np.random.default_rng([seed, SETTINGS.index(setting), CASES.index(case), index])
        if case == "queries":
            _play_queries(setting, rng, measured)
        elif case == "selected":
            stability += _play_selected(setting, rng, measured, on_dev=index % 4 == 0)
        elif case.endswith("selected"):
            _play_selected_runs(setting, int(case[0]), rng, measured)
        else:
            _play_runs(setting, int(case[0]), rng, measured)
    return {name: float(np.mean(values)) for name, values in measured.items()}, _stability_rows(
        stability
    )


def _play_queries(setting: Setting, rng: np.random.Generator, measured: Measured) -> None:
    trials = 6
    scores = trial_scores(setting, trials, 4, rng)
    encoders = Encoders.of_scores(setting, scores, np.repeat(np.arange(trials), 4), setting.shared)
    _measure(encoders, setting, trials, rng, measured)


def _measure(
    encoders: Encoders, setting: Setting, trials: int, rng: np.random.Generator, measured: Measured
) -> None:
    """Score the encoders on new queries, and record whether intervals cover the truth."""
    everything = encoders.joined(limits(setting, trials))
    scores = Queries.draw(setting, trials + 1, rng).scores(everything, rng)
    _note(encoders.truth, everything.truth, scores, measured)


def _note(
    truth: Float64Array, of_all: Float64Array, scores: Float64Array, measured: Measured
) -> None:
    """Record coverages. ``truth`` (points, 2) are the members; R and the oracle follow in ``of_all`` and ``scores``."""
    num = len(truth)
    result = front.assess(_judged(scores, num), seed=0)
    points = list(result.members.values())
    measured["P"] += _covers([point.polarity for point in points], truth[:, 0])
    measured["S"] += _covers([point.similarity for point in points], truth[:, 1])
    retentions = [point.retention for point in points if point.retention is not None]
    measured["retention"] += _covers(retentions, truth[:, 1] / of_all[num, 1])
    _note_areas(result.hypervolume, result.share, of_all, num, measured)


def _judged(
    scores: Float64Array, num: int, trained: Trained | None = None
) -> front.FrontQueryScores:
    """Return ``num`` members, then R and the oracle."""
    members = list(range(num))
    return front.FrontQueryScores(
        names=[(row, None, "plain", None) for row in range(len(scores))],
        scores=scores,
        members=members,
        feasible=members,
        rivals=members,
        reference=num,
        oracle=range(num + 1, len(scores)),
        trained=trained,
    )


def _note_areas(
    area: Interval | None, share: Interval | None, truth: Float64Array, num: int, measured: Measured
) -> None:
    assert area is not None and share is not None
    begin = truth[num] * [1.0, 0.5]
    true_area = hypervolume(truth[:num], begin)
    true_limit = hull_area(truth[num + 1 :], begin)
    measured["hypervolume"].append(area.contains(true_area))
    measured["share"].append(share.contains(true_area / true_limit))
    measured["half-width of share"].append(share.half_width)


def _covers(intervals: Sequence[Interval], truth: Float64Array) -> list[float]:
    return [
        float(
            np.mean(
                [interval.contains(value) for interval, value in zip(intervals, truth, strict=True)]
            )
        )
    ]


def _play_runs(setting: Setting, runs: int, rng: np.random.Generator, measured: Measured) -> None:
    trials, points = 8, 3
    scores = trial_scores(setting, trials, points, rng)
    numbers = np.repeat(np.arange(trials), points)
    encoders = Encoders.of_scores(setting, scores, numbers, setting.shared)
    # Some configurations are more sensitive to their seed than others, which pooling does not see.
    sensitivity = np.exp(rng.normal(0, 0.3, trials))[numbers]
    moves = _SeedMoves(setting.seed_logits * sensitivity, setting.seed_similarity * sensitivity)
    untrained = limits(setting, trials)
    queries = Queries.draw(setting, trials + 1, rng)
    by_run = [queries.scores(moves.run(encoders, points, rng), rng) for _ in range(runs)]
    limit_scores = queries.scores(untrained, rng)
    stacked = np.stack(by_run)
    replicated = [
        Replicated(tuple(range(points)), stacked[:, points * trial : points * (trial + 1)])
        for trial in range(trials)
    ]
    truth = np.concatenate([encoders.over_seeds(moves.logits), untrained.truth])
    num = len(scores)
    noise = SeedNoise(replicated)
    means = [
        mean
        for one in configurations.intervals(replicated, limit_scores[0], noise, GOALS)
        for mean in one
    ]
    measured["P"] += _covers([mean.polarity for mean in means], truth[:num, 0])
    measured["S"] += _covers([mean.similarity for mean in means], truth[:num, 1])
    retentions = [mean.retention for mean in means if mean.retention is not None]
    measured["retention"] += _covers(retentions, truth[:num, 1] / truth[num, 1])
    trained = Trained([Scored.by_all_runs(replicates) for replicates in replicated], noise)
    result = front.assess(_judged(np.concatenate([by_run[0], limit_scores]), num, trained), seed=0)
    _note_areas(result.hypervolume, result.share, truth, num, measured)


def _play_selected_runs(
    setting: Setting, runs: int, rng: np.random.Generator, measured: Measured
) -> None:
    """Train every configuration once and those on the front ``runs`` times, and select the front from all."""
    trials, points = 40, 3
    numbers = np.repeat(np.arange(trials), points)
    encoders = Encoders.of_scores(
        setting, trial_scores(setting, trials, points, rng), numbers, setting.shared
    )
    moves = _SeedMoves(
        np.full(len(numbers), setting.seed_logits), np.full(len(numbers), setting.seed_similarity)
    )
    tuned = [moves.run(encoders, points, rng) for _ in range(runs)]
    untrained = limits(setting, trials)
    scores: dict[ScoredSplit, Float64Array] = {}
    of_limits: dict[ScoredSplit, Float64Array] = {}
    for split in SPLITS:
        queries = Queries.draw(setting, trials + 1, rng)
        of_runs = np.stack([queries.scores(encoder, rng) for encoder in tuned])
        scores[split] = of_runs.reshape(runs, trials, points, 2, -1)
        of_limits[split] = queries.scores(untrained, rng)
    run = SimulatedRun(setting, scores, of_limits)
    for name, with_replicates in (("", True), (" by queries alone", False)):
        certainty, members = simulated_runs.certainty(run, with_replicates=with_replicates)
        rows = sorted(
            {points * ((trial or 0) % trials) + int(value or 0) for trial, _, _, value in members}
        )
        truth = np.concatenate([encoders.over_seeds(moves.logits)[rows], untrained.truth])
        for split, result in certainty.fronts.items():
            own: Measured = defaultdict(list)
            _note_areas(result.hypervolume, result.share, truth, len(rows), own)
            for quantity, values in own.items():
                measured[f"on {split}{name}: {quantity}"] += values


class _SeedMoves:
    """Effects of a seed on encoders: standard deviations (points,) of logits and S. Points of a run move together."""

    def __init__(self, logits: Float64Array, similarity: Float64Array) -> None:
        self.logits, self.similarity = logits, similarity

    def run(self, encoders: Encoders, points: int, rng: np.random.Generator) -> Encoders:
        trials = len(encoders.trials) // points
        common = np.repeat(rng.normal(size=(trials, 2)), points, axis=0)
        # what gains P loses S
        common[:, 1] = -0.4 * common[:, 0] + np.sqrt(1 - 0.4**2) * common[:, 1]
        moved = np.sqrt(0.8) * common + np.sqrt(0.2) * rng.normal(size=common.shape)
        return encoders.moved(moved[:, 0] * self.logits, moved[:, 1] * self.similarity)


def _play_selected(
    setting: Setting, rng: np.random.Generator, measured: Measured, *, on_dev: bool
) -> list[tuple[float, bool]]:
    """Record coverages on test and, if requested, on dev: each rival's stability, and whether it truly is on the front."""
    trials, points = 256, 4
    numbers = np.repeat(np.arange(trials), points)
    encoders = Encoders.of_scores(
        setting, trial_scores(setting, trials, points, rng), numbers, setting.shared
    )
    dev = Queries.draw(setting, trials + 1, rng).scores(
        encoders.joined(limits(setting, trials)), rng
    )
    candidates = dev[: len(numbers)]
    means = candidates.mean(axis=-1)
    rivals = _near_front(means, candidates.std(axis=-1) / np.sqrt(setting.num_queries))
    members = np.array(non_dominated(means))
    chosen = encoders.chosen(members)
    _measure(chosen, setting, trials, rng, measured)
    if not on_dev:
        return []
    added = (means[members] - chosen.truth).mean(axis=0)
    nested = selection.optimism(candidates[rivals], seed=0)
    for score, name in enumerate(("P", "S")):
        measured[f"selection added to {name}"].append(added[score])
        measured[f"nested estimate for {name}"].append(nested[score])
    of_all = chosen.joined(limits(setting, trials)).truth
    judged = dev[np.concatenate([members, np.arange(len(numbers), len(dev))])]
    _note_on_dev("on dev", chosen.truth, of_all, judged, measured)
    judged[: len(members)] -= nested[:, None]
    _note_on_dev("on dev, moved", chosen.truth, of_all, judged, measured)
    return list(_stabilities(encoders, candidates, rivals))


def _note_on_dev(
    name: str, truth: Float64Array, of_all: Float64Array, scores: Float64Array, measured: Measured
) -> None:
    """Record coverages like :func:`_note`, under separate names."""
    own: Measured = defaultdict(list)
    _note(truth, of_all, scores, own)
    for quantity in QUANTITIES:
        measured[f"{name}: {quantity}"] += own[quantity]


def _near_front(means: Float64Array, errors: Float64Array) -> Any:
    """Return the rows of points that would be on the front with three standard errors more."""
    members = means[non_dominated(means)]
    better = means + 3 * errors
    is_far = (members[None] > better[:, None]).all(axis=-1).any(axis=-1)
    return np.flatnonzero(~is_far)


def _stabilities(
    encoders: Encoders, candidates: Float64Array, rivals: Any
) -> Iterator[tuple[float, bool]]:
    truly = set(non_dominated(encoders.truth))
    noise = Noise.of_queries(candidates[rivals], seed=0)
    stable = memberships(noise.resampled).mean(axis=0)
    for row, stability in zip(rivals.tolist(), stable.tolist(), strict=True):
        yield stability, row in truly


def _stability_rows(measured: Sequence[tuple[float, bool]]) -> list[Any]:
    rows = []
    for low, high in itertools.pairwise(STABILITIES):
        inside = [truly for stability, truly in measured if low < stability <= high]
        if inside:
            rows.append((f"{low:g} to {high:g}", f"{len(inside):,}", f"{np.mean(inside):.2f}"))
    return rows


def _line(row: dict[str, Any]) -> str:
    figures = [
        f"{name} {100 * value:.1f}"
        if name.split(": ")[-1] in QUANTITIES
        else f"{name} {100 * value:.2f}"
        for name, value in row.items()
        if name not in ("setting", "case")
    ]
    return f"{row['setting']}; {row['case']}: {', '.join(figures)}"


if __name__ == "__main__":
    main()
