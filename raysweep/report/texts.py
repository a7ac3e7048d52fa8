"""Explanations shared by Markdown, the page and the terminal."""

from collections.abc import Mapping

from raysweep.metrics.scores import Goals, spec_of
from raysweep.results.account import Account, sentence
from raysweep.results.bill import Bill, bill_text
from raysweep.results.types import Results, RunInfo

MEANS_TEXT = (
    "The table lists the front members whose configuration was trained with several seeds. It shows each member's P and S "
    "on dev, and the means over the runs ± one standard deviation. A member that scores above the mean was partly lucky."
)

_LABELED_SCORES_TEXT = (
    "P is the weighted share of retrieved sentences that have the query's label. S is the weighted mean cosine between "
    "the query and the retrieved sentences under the reference encoder. Retention is S divided by the reference "
    "encoder's own S."
)

RANKING_TEXT = (
    "The ranking score is 1 - PND: the share of a query's (positive, negative) pairs in which the positive has the "
    "larger cosine. The agreement score is Spearman's rank correlation between the cosines of a query's documents and "
    "their cosines under the reference encoder. For sentence pairs, a group of pairs takes the place of a query."
)


def scores_text(info: RunInfo) -> str:
    """Return the definitions of the scores and of the knee."""
    definitions = RANKING_TEXT if info.is_related else _LABELED_SCORES_TEXT
    return (
        f"{definitions} All scores are means over queries, x100. The knee is the point farthest above the line "
        "between the two ends of the front, with both scores scaled to the front's range."
    )


CERTAINTY_TEXT = (
    "Intervals are 90% bootstrap intervals over queries; all points use the same resampled queries. They do not cover "
    "other training seeds. Intervals on dev are corrected for selection bias, which is estimated by repeated "
    "cross-validation over queries. Stability is the share of resamples in which a member is on the front. It is not the "
    "probability that the member truly belongs there. The knee column shows the share of resamples in which a member is "
    "the knee. In 90% of the resamples, the knee is one of the members marked ★. Differences from the knee are paired by "
    "query. An asterisk marks differences that are significant at the 10% level after Holm's adjustment."
)

AREA_QUERIES_TEXT = (
    "Brackets contain 90% intervals over queries for the values that the same points would have without noise. "
    "They do not account for training seeds, because no configuration has a second run with stored scores."
)

AREA_SEEDS_TEXT = (
    "Brackets contain 90% intervals over queries and seeds for the values at the configurations' mean scores. Seed noise "
    "is pooled over the configurations that ran more than once. On test, only the runs on the front are scored. The "
    "expected effect of their seeds, which is estimated on dev, is subtracted. The intervals do not account for the bias "
    "from choosing configurations by their first runs."
)

CORRECTED = "corrected for selection bias"
"""A short form of :data:`AREA_BIAS_TEXT` for use next to an interval."""

AREA_BIAS_TEXT = (
    "Noise inflates the area, because only the luckier of two similar points counts. The intervals are corrected for this "
    "bias and can be below the area itself."
)

REPLICATED_TEXT = (
    "The 90% intervals are for the configuration's mean score over queries and seeds. They come from a crossed "
    "random-effects model with seed noise pooled over configurations."
)

BASELINES_TEXT = (
    "Baselines are never on the front and do not count toward its hypervolume. probe(g) retrieves by R's cosine plus g "
    "times the inner product of the class probabilities from a logistic regression on R's embeddings. setfit is the body "
    "of a model trained with the setfit package. Published scores come from other authors, who used a different retrieval "
    "pool. Brackets contain 90% intervals over queries. SetFit models and published scores have no intervals, because "
    "their per-query scores are not stored. A front member dominates a baseline if it is at least as good in both P and S "
    "on the same split, and better in at least one."
)

COST_TEXT = (
    "Seconds are the time during which trials occupied CPUs and GPUs. The time saved is an estimate based on each "
    "early-stopped trial's remaining rungs and its mean time per completed rung."
)


BILL_TEXT = (
    "The bill covers the time during which raysweep ran, including prepare. It excludes disks, IP addresses, network "
    "traffic, and node uptime before and after that time."
)


def hypervolume_text(goals: Goals) -> str:
    p, s = goals.headings
    factors = []
    for goal in goals:
        share = spec_of(goal).reference_share
        factors.append({1.0: "", 0.5: "half of "}.get(share, f"{share:g} times "))
    of_p, of_s = factors
    return (
        "The hypervolume is the area that the front dominates above the given point, for scores x100. That point is at "
        f"{of_p}the reference encoder R's {p} and {of_s}its {s} on the same split. The oracle front is an upper bound for "
        "all encoders. Its area includes the chords between its points. The share is the front's area divided by the "
        "oracle's. The front on test is the one that was chosen on dev. Points that violate a constraint do not count."
    )


def front_title(goals: Goals) -> str:
    """Return the title for a plot of the front, such as ``Polarity against similarity``."""
    return f"{goals.p.capitalize()} against {goals.s}"


def objective_formula(info: RunInfo) -> str:
    """Return the objective as a formula, such as ``0.5 P + 0.5 S``."""
    p, s = spec_of(info.polarity).heading, spec_of(info.similarity).heading
    return f"{info.polarity_weight:g} {p} + {1 - info.polarity_weight:g} {s}"


def constraints_text(info: RunInfo) -> str:
    """Return the constraints, such as ``P ≥ 70.0, retention ≥ 90.0``, or an empty string if there are none."""
    return _minima_text(
        {
            constraint_heading(name, info.goals): minimum
            for name, minimum in info.constraints.items()
        }
    )


def constraint_heading(name: str, goals: Goals) -> str:
    """Return the heading of a constrained score: P, S, or the constraint's name."""
    headings = dict(zip(("polarity", "similarity"), goals.headings, strict=True))
    return headings.get(name, name)


def limits_text(results: Results) -> str:
    """Return the constraints and the guards' limits, or an empty string if there are none."""
    info = results.info
    measured = {score.guard: score.at_least for score in results.guards}
    guards = {
        name: minimum
        for name, minimum in {**measured, **info.guards}.items()
        if minimum is not None
    }
    return ", ".join(filter(None, (constraints_text(info), _minima_text(guards))))


def _minima_text(minima: Mapping[str, float]) -> str:
    return ", ".join(f"{name} ≥ {100 * minimum:.1f}" for name, minimum in minima.items())


def objective_text(info: RunInfo) -> str:
    constraints = f" Constraints: {constraints_text(info)}." if info.constraints else ""
    return f"Objective: {objective_formula(info)}.{constraints}"


def bill_sentences(bill: Bill) -> str:
    text = bill_text(bill)
    return f"{text[0].upper()}{text[1:]}. {BILL_TEXT}"


def cost_text(account: Account) -> str:
    text = sentence(account)
    return f"{text[0].upper()}{text[1:]}. {COST_TEXT}"
