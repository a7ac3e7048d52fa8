"""Sentences shared by the tables, the page and the terminal."""

from collections.abc import Mapping

from raysweep.results.account import Account, sentence
from raysweep.results.bill import Bill, bill_text
from raysweep.results.types import Results, RunInfo

SYMBOLS = {"polarity": "P", "similarity": "S"}  # other scores have none

HYPERVOLUME_TEXT = (
    "The area that the front dominates above the stated point: P of the reference encoder R and half of its S, on the"
    " same split, with scores x100. The oracle front is the limit no encoder can pass, with the chords between its "
    "points; the share is the part of its area that the front reaches. On test it is the front chosen on dev that is "
    "measured. Points that miss a constraint of the sweep count for nothing."
)

MEANS_TEXT = (
    "Front members whose configuration was trained more than once, each time with another seed: P and S of the member "
    "itself, and their means over the runs, ± one standard deviation over the runs. A member that is above its mean is so "
    "partly by luck. All on dev."
)

SCORES_TEXT = (
    "P is the weighted share of retrieved sentences with the query's label, S their weighted mean cosine under the "
    "reference encoder, retention S divided by that encoder's own S; all x100, means over queries. "
    "The knee is the point farthest beyond the chord between the front's ends, both objectives scaled to the front."
)

CERTAINTY_TEXT = (
    "90% intervals over the queries that might have been drawn; all points are averaged over the same resampled queries. "
    "They are of the encoders as they were trained, not of what other training seeds would give. Those on dev are moved "
    "down by what choosing the front there adds to its scores, which nested resampling says. The stability of a member is "
    "the share of resamples in which it is on the front. It is no probability that it truly is: what got there by luck is "
    "there in many resamples too. The column knee has the share in which a member is the knee; those marked ★ hold it "
    "together in 90%. Differences from the knee are on the same queries, each with an interval of its own, and with an "
    "asterisk where they are more than noise, all of them taken together (Holm's method, at 10%)."
)

AREA_QUERIES_TEXT = (
    "In brackets are 90% intervals over queries, of what the same points are worth at their true scores. Other seeds of "
    "training are not in them: no configuration has a second run whose scores are stored."
)

AREA_SEEDS_TEXT = (
    "In brackets are 90% intervals over queries and seeds, of what the configurations of the same points are worth at what "
    "they score on average over both. The noise of seeds is pooled over the configurations that ran more than once. On "
    "test, where only runs of the front are scored, what these were luckier by than others on dev is taken off, as far as "
    "that is their seeds' doing. That configurations were chosen by how their first runs did is not in the intervals."
)

CORRECTED = "less what luck adds"
"""A short substitute for :data:`AREA_BIAS_TEXT` next to the interval of an area."""

AREA_BIAS_TEXT = (
    "The area of noisy points is too great on average, since of close ones the luckier counts; the intervals are corrected "
    "for that, so that they may lie lower than the area itself."
)

REPLICATED_TEXT = (
    "Intervals are those of what the configuration scores on average over queries and seeds: 90%, by crossed random "
    "effects, the noise of seeds pooled over the configurations."
)

BASELINES_TEXT = (
    "Points that no trial made: they are never on the front and count for no hypervolume of it. probe(g) is R itself, "
    "retrieved with by its cosine and g times the inner product of the class probabilities of a logistic regression on its "
    "embeddings; setfit the body of a model that the setfit package trained; published scores are those of others, whose "
    "retrieval pool was another one. In brackets are 90% intervals over queries; SetFit models and published scores have "
    "none, since their scores of each query are not stored. A member of the front dominates a point that is no better in P "
    "nor in S, and worse in one, on the same split."
)

COST_TEXT = (
    "Seconds are those for which trials held their CPUs and GPUs. What was saved is an estimate: what trials that were "
    "stopped would have taken to their end, at the pace of the rungs they did."
)


BILL_TEXT = (
    "Counted while raysweep ran, prepare included. Nodes that are there before or afterwards, disks, addresses and traffic "
    "are not in it."
)


def objective_formula(info: RunInfo) -> str:
    """Return the objective as a formula, such as ``0.5 P + 0.5 S``."""
    other = "retention" if info.similarity == "retention" else "S"
    return f"{info.polarity_weight:g} P + {1 - info.polarity_weight:g} {other}"


def constraints_text(info: RunInfo) -> str:
    """Return the constraints, such as ``P ≥ 70.0, retention ≥ 90.0``; empty if the sweep has none."""
    return _least_text({SYMBOLS.get(name, name): least for name, least in info.constraints.items()})


def limits_text(results: Results) -> str:
    """Return the constraints as in :func:`constraints_text`, followed by the limits of guards; empty if there are none."""
    info = results.info
    measured = {score.guard: score.at_least for score in results.guards}
    guards = {name: least for name, least in {**measured, **info.guards}.items() if least is not None}
    return ", ".join(filter(None, (constraints_text(info), _least_text(guards))))


def _least_text(least_by_name: Mapping[str, float]) -> str:
    return ", ".join(f"{name} ≥ {100 * least:.1f}" for name, least in least_by_name.items())


def objective_text(info: RunInfo) -> str:
    """Return the sweep's objective and constraints in one or two sentences."""
    constraints = f" Constraints: {constraints_text(info)}." if info.constraints else ""
    return f"Objective: {objective_formula(info)}.{constraints}"


def bill_sentences(bill: Bill) -> str:
    """Return the bill as sentences, including the costs that it omits."""
    text = bill_text(bill)
    return f"{text[0].upper()}{text[1:]}. {BILL_TEXT}"


def cost_text(account: Account) -> str:
    """Return the account as sentences, followed by the meaning of its numbers."""
    text = sentence(account)
    return f"{text[0].upper()}{text[1:]}. {COST_TEXT}"
