"""Explanations shared by Markdown, the page and the terminal."""

from collections.abc import Mapping

from raysweep.metrics.scores import Goals, spec_of
from raysweep.results.account import Account, sentence
from raysweep.results.bill import Bill, bill_text
from raysweep.results.types import Results, RunInfo

MEANS_TEXT = (
    "For each front member whose configuration was trained more than once, with different seeds, the table shows the "
    "member's P and S, and the means over the runs ± one standard deviation, all on dev. A member that scores above the "
    "mean was partly lucky."
)

_LABELED_SCORES_TEXT = (
    "P is the weighted share of retrieved sentences that have the query's label. S is the weighted mean cosine between "
    "the query and the retrieved sentences under the reference encoder. Retention is S divided by the reference "
    "encoder's own S."
)

RANKING_TEXT = (
    "The ranking score is 1 - PND: the share of a query's (positive, negative) pairs whose positive has the "
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
    "Intervals are 90% bootstrap intervals over queries; all points use the same resampled queries. They hold for the "
    "trained encoders, not for other training seeds. Intervals on dev are lowered by the front's selection bias, which "
    "is estimated by repeated cross-validation over queries. Stability is the share of resamples in which a member is on "
    "the front. It is not the probability that the member belongs there, because a lucky member is on the front of most "
    "resamples too. The knee column shows the share of resamples in which a member is the knee; the members marked ★ "
    "together cover 90% of the resamples. Differences from the knee are paired by query, each with its own interval. An "
    "asterisk marks differences that are significant at the 10% level after Holm's adjustment over all of them."
)

AREA_QUERIES_TEXT = (
    "Brackets contain 90% intervals over queries for the values that the same points would have at their true scores. "
    "They do not account for training seeds, because no configuration has a second run with stored scores."
)

AREA_SEEDS_TEXT = (
    "Brackets contain 90% intervals over queries and seeds for the values that the same points would have at their "
    "configurations' mean scores. Seed noise is pooled over the configurations that ran more than once. On test, where "
    "only the runs on the front are scored, the intervals are lowered by these runs' luck on dev, to the extent that it "
    "comes from their seeds. The intervals do not account for the bias from choosing configurations by their first runs."
)

CORRECTED = "corrected for selection bias"
"""A short form of :data:`AREA_BIAS_TEXT` for use next to an interval."""

AREA_BIAS_TEXT = (
    "The area of noisy points is too large on average, because the luckier of two similar points counts. The "
    "intervals are corrected for this bias, so they can lie below the area itself."
)

REPLICATED_TEXT = (
    "Intervals are 90% intervals for the configuration's mean score over queries and seeds, from a crossed "
    "random-effects model with seed noise pooled over configurations."
)

BASELINES_TEXT = (
    "Baselines do not come from trials. They are never on the front and do not count toward its hypervolume. probe(g) "
    "is R itself: retrieval by its cosine plus g times the inner product of the class probabilities from a logistic "
    "regression on its embeddings. setfit is the body of a model trained with the setfit package. Published scores "
    "come from other authors and a different retrieval pool. Brackets contain 90% intervals over queries; SetFit models "
    "and published scores have none, because their per-query scores are not stored. A front member dominates a "
    "baseline if it is at least as good in both P and S on the same split, and better in at least one."
)

COST_TEXT = (
    "Seconds count the time during which trials occupied their CPUs and GPUs. The savings are an estimate: the "
    "time that early-stopped trials would have needed for their remaining rungs, at the pace of their completed rungs."
)


BILL_TEXT = (
    "The bill covers the time during which raysweep ran, including prepare. It excludes disks, IP addresses, network "
    "traffic, and the uptime of nodes before and after that time."
)


def hypervolume_text(goals: Goals) -> str:
    """Return an explanation of hypervolumes."""
    p, s = goals.headings
    factors = []
    for goal in goals:
        share = spec_of(goal).reference_share
        factors.append({1.0: "", 0.5: "half of "}.get(share, f"{share:g} times "))
    of_p, of_s = factors
    return (
        "The hypervolume is the area that the front dominates above the given point, which is "
        f"{of_p}the reference encoder R's {p} and {of_s}its {s} on the same split, for scores x100. The oracle front is "
        "the limit that no encoder can exceed; its area includes the chords between its points. The share is the front's "
        "area divided by the oracle's. The front on test is the one that was chosen on dev. Points that violate a "
        "constraint of the sweep do not count."
    )


def front_title(goals: Goals) -> str:
    """Return the title for a picture of the front, such as "Polarity against similarity"."""
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
    """Return the heading for the score that a constraint bounds: P, S, or the constraint's own name."""
    headings = dict(zip(("polarity", "similarity"), goals.headings, strict=True))
    return headings.get(name, name)


def limits_text(results: Results) -> str:
    """Return the constraints of :func:`constraints_text` plus the guards' limits; may be empty."""
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
    """Return the sweep's objective and constraints in one or two sentences."""
    constraints = f" Constraints: {constraints_text(info)}." if info.constraints else ""
    return f"Objective: {objective_formula(info)}.{constraints}"


def bill_sentences(bill: Bill) -> str:
    """Return the bill as sentences, followed by what it covers and excludes."""
    text = bill_text(bill)
    return f"{text[0].upper()}{text[1:]}. {BILL_TEXT}"


def cost_text(account: Account) -> str:
    """Return the account as sentences, followed by an explanation of its numbers."""
    text = sentence(account)
    return f"{text[0].upper()}{text[1:]}. {COST_TEXT}"
