"""Text about a front's uncertainty: the floor, the knee region, and the drop from dev to test."""

from collections.abc import Iterator

from raysweep.report.choice import probe_command
from raysweep.report.summary import Summary
from raysweep.report.tables import show, show_area, show_interval
from raysweep.report.texts import (
    AREA_BIAS_TEXT,
    AREA_QUERIES_TEXT,
    AREA_SEEDS_TEXT,
    MEANS_TEXT,
    REPLICATED_TEXT,
    hypervolume_text,
)
from raysweep.results.query_scores import name_of_point
from raysweep.results.types import ScoredSplit
from raysweep.uncertainty.front import Floor
from raysweep.uncertainty.interval import Interval
from raysweep.uncertainty.selection import Drop

MAX_NAMES = 5  # maximum number of listed members of the knee region


def area_text(summary: Summary) -> str:
    """Return an explanation of the hypervolume table."""
    text = hypervolume_text(summary.goals)
    if not summary.uncertainty:
        return text
    has_seeds = all(front.has_seeds for front in summary.uncertainty.values())
    intervals = AREA_SEEDS_TEXT if has_seeds else AREA_QUERIES_TEXT
    return f"{text} {intervals} {AREA_BIAS_TEXT}"


def means_text(summary: Summary) -> str:
    """Return an explanation of the replicates table."""
    return f"{MEANS_TEXT} {REPLICATED_TEXT}" if summary.certainty.replicated else MEANS_TEXT


def trust_sentences(summary: Summary) -> list[str]:
    """Return paragraphs on the floor, the knee and the drop; empty if per-query scores are not stored."""
    sentences = []
    for split, front in summary.uncertainty.items():
        floor = front.floor
        if floor is not None:
            sentences.append(_floor_sentence(split, floor, front.noise))
    certainty = summary.certainty
    if certainty.compared_on is not None:
        sentences.append(_knee_sentence(summary, certainty.compared_on))
    for score, drop in certainty.drops.items():
        sentences.append(_drop_sentence(score, drop))
    return sentences


def _floor_sentence(split: ScoredSplit, floor: Floor, noise: str) -> str:
    amount = f"{show_area(floor.gain)} {show_interval(floor.interval, show_area)}"
    probe = "the probe, which needs no training,"
    difference = f"On {split}, the front's hypervolume exceeds that of {probe} by {amount} (interval over {noise})."
    if floor.is_beaten:
        return f"{difference} The lower bound is positive: the front beats this floor."
    if floor.is_better:
        return f"{difference} The upper bound is negative: the floor is better than the front."
    return (
        f"{difference} The interval contains 0: it is unclear whether the front beats this floor."
    )


def _knee_sentence(summary: Summary, split: ScoredSplit) -> str:
    front = summary.uncertainty[split]
    points = [member.dev for member in summary.members]
    names = {name_of_point(point): point.name for point in points}
    region = [(names[name], front.members[name].knee_share) for name in front.knee_region]
    num_members = len(region)
    if num_members == 1:
        name, share = region[0]
        return f"On {split}, the knee is {name} in {share:.0%} of the resamples."
    texts = [f"{name} ({share:.0%})" for name, share in region[:MAX_NAMES]]
    num_others = num_members - len(texts)
    if num_others:
        texts.append(f"{num_others} more")
    listed = ", ".join(texts)
    return f"On {split}, the knee is one of {num_members} members (share of resamples in parentheses): {listed}."


def _drop_sentence(score: str, drop: Drop) -> str:
    within = ""
    if drop.total_interval.is_finite:
        within = f" (90% interval: {_less_within(drop.total_interval)})"
    text = (
        f"On average, the {score} of the front's members is {_less(drop.total)} on test than on dev{within}. Selection on "
        f"dev makes it {_less(drop.selection)}; noise or a shift between the splits makes it {_less(drop.shift)}."
    )
    reference = drop.reference
    if reference is not None and reference.is_finite:
        text += f" For R, which was not selected, {score} is {_less_within(reference)} on test than on dev."
    return text


def _less(difference: float) -> str:
    """Describe a difference, computed as dev minus test."""
    rounded = round(difference, 3)
    return f"{show(abs(rounded))} {'higher' if rounded < 0 else 'lower'}"


def _less_within(interval: Interval) -> str:
    """Describe an interval, such as ``0.5 to 2.4 higher`` or ``between 0.3 higher and 0.5 lower``."""
    low, high = round(interval.low, 3), round(interval.high, 3)
    if low < 0 < high:
        return f"between {_less(low)} and {_less(high)}"
    nearer, farther = sorted((low, high), key=abs)
    return f"{show(abs(nearer))} to {_less(farther)}"


def trust_lines(summary: Summary) -> Iterator[str]:
    """Yield terminal lines on whether the front beats the floor."""
    for split, front in summary.uncertainty.items():
        if front.floor is not None:
            amount = show_interval(front.floor.interval, show_area)
            verdict = "better than the front" if front.floor.is_better else "not shown to be beaten"
            if front.floor.is_beaten:
                verdict = "beaten"
            remedy = ""
            if front.floor.is_better and (command := probe_command(summary)):
                remedy = f"; to export the probe: {command}"
            yield f"floor (probe) on {split}: {verdict}, difference in hypervolume (front minus floor) {amount}{remedy}"
