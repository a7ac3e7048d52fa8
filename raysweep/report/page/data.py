"""The data of the page's script, as one JSON value."""

from raysweep.report.choice_table import export_command
from raysweep.report.page.limits import limits
from raysweep.report.page.misses import misses
from raysweep.report.page.points import ShownPoints, member_values
from raysweep.report.page.readings import reading_values
from raysweep.report.page.scores import Json, guard_values, member_intervals
from raysweep.report.page.trials import common_values, parameters, statuses, trial_values
from raysweep.report.page.visible import visible
from raysweep.report.style import DARK_PALETTE, PALETTE
from raysweep.report.summary import SPLITS, Member, Summary
from raysweep.report.texts import constraints_text, objective_formula
from raysweep.results.readings import Readings


def page_data(summary: Summary, readings: Readings | None = None) -> Json:
    """Return the page's data. Scores are x100, and user texts are made visible."""
    results = summary.results
    shown = ShownPoints.of(summary)
    places = shown.places
    trials = [each.trial for each in summary.trials]
    return {
        "run": _run(summary),
        "palette": {"light": PALETTE, "dark": DARK_PALETTE},
        "statuses": statuses(),
        "splits": list(summary.complete_splits),
        "parameters": parameters(trials),
        "common": common_values(trials),
        "points": shown.columns(),
        "trials": trial_values(summary, places),
        "members": [_member(member, places[member.dev], summary) for member in summary.members],
        "limits": {split: limits(summary, split) for split in SPLITS},
        "readings": None if readings is None else _readings(readings, summary),
        "isRunning": results.status == "running" and results.has_driver is not False,
    }


def _run(summary: Summary) -> Json:
    results = summary.results
    return {
        "name": visible(results.info.name),
        "objective": objective_formula(results.info),
        "constraints": constraints_text(results.info),
        "k": results.info.k,
    }


def _member(member: Member, place: int, summary: Summary) -> Json:
    return {
        **member_values(member, place),
        "misses": misses(member, summary),
        "guards": [guard_values(member.guards[name]) for name in sorted(member.guards)],
        "command": visible(_export_command(summary, member)),
        "intervals": {split: member_intervals(member, summary.uncertainty.get(split)) for split in summary.splits},
    }


def _readings(readings: Readings, summary: Summary) -> Json:
    members = [member.dev for member in summary.members]
    return reading_values(readings, members, summary.results.info.label_names)


def _export_command(summary: Summary, member: Member) -> str:
    """Return the shell command that exports this member as a model, to a folder named after it."""
    point = member.dev
    folder = f"{summary.results.info.name}-{point.name}".replace(":", "-").replace("/", "-").replace("=", "-")
    return export_command(summary, point.name, folder)
