"""The constraints and guards that a front member misses."""

from collections.abc import Iterator

from raysweep.report.page.visible import visible
from raysweep.report.summary import Member, Summary
from raysweep.report.tables import show
from raysweep.report.texts import SYMBOLS


def misses(member: Member, summary: Summary) -> list[str]:
    """Return missed limits, constraints on dev first, such as ``P ≥ 70.0 (66.5)`` and ``guard trec ≥ 95.0 (93.0)``."""
    return [*_missed_constraints(member, summary), *_missed_guards(member)]


def _missed_constraints(member: Member, summary: Summary) -> Iterator[str]:
    reference = summary.references.get("dev")
    if reference is None:
        return
    point = member.dev
    for name, least in summary.results.info.constraints.items():
        unit = reference.similarity if name == "retention" else 1.0
        score = point.polarity if name == "polarity" else point.similarity
        if score < least * unit:  # same comparison as in the sweep's objective
            yield _missed(SYMBOLS.get(name, name), score / unit, least)


def _missed_guards(member: Member) -> Iterator[str]:
    for name, measured in sorted(member.guards.items()):
        if measured.at_least is not None and not measured.is_met:
            yield _missed(f"guard {visible(name)}", measured.score, measured.at_least)


def _missed(what: str, score: float, least: float) -> str:
    """Format a missed limit, with more digits if one decimal would hide the difference."""
    wanted, found = show(least), show(score)
    if wanted == found:
        wanted, found = f"{100 * least:.6g}", f"{100 * score:.6g}"
    return f"{what} ≥ {wanted} ({found})"
