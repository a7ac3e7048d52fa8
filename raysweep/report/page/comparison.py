"""The page of a comparison: the fronts of several runs in one chart, and the tables of the comparison."""

from raysweep.metrics.scores import spec_of
from raysweep.output import escape_controls, escape_html
from raysweep.report.page.markup import details, figure, join, note_list, paragraph, section, table
from raysweep.report.page.points import Json, compared_points, scaled
from raysweep.report.side_by_side import Side, SideBySide
from raysweep.report.side_by_side_texts import notes, point_table, sections
from raysweep.report.style import DARK_PALETTE, PALETTE
from raysweep.report.texts import front_title, scores_text
from raysweep.results.types import ScoredSplit


def comparison_header(comparison: SideBySide) -> str:
    """Return the names of the runs, and the data that they share."""
    info = comparison.sides[0].summary.results.info
    title = f"<h1>{escape_html(_names(comparison))}</h1>"
    subtitle = f"{len(comparison.sides)} runs on {info.dataset}; raysweep {info.version}"
    return join([title, paragraph(subtitle, "soft")])


def comparison_sections(comparison: SideBySide, png: bytes) -> list[str]:
    """Return the notes, the chart of all fronts and the tables; ``png`` is the chart for readers without scripts."""
    definitions = paragraph(scores_text(comparison.sides[0].summary.results.info))
    chart = '<div class="scripted" id="fronts-chart" hidden></div>'
    image = f"<noscript>{figure(png, front_title(comparison.goals))}</noscript>"
    points = details(
        "All points of the fronts", table(point_table(comparison), "Points of the fronts", "fit")
    )
    parts = [
        note_list(notes(comparison)),
        section("fronts", "Fronts", definitions, chart, image, points),
    ]
    for title, content in sections(comparison):
        name = title.lower().replace(" ", "-")
        parts.append(section(name, title, table(content, title, "fit")))
    return parts


def comparison_data(comparison: SideBySide) -> Json:
    """Return the data of the page's script: fronts and limits by split, with scores x100."""
    goals = comparison.goals
    return {
        "run": {"name": _names(comparison)},
        "title": front_title(goals),
        "labels": {"p": spec_of(goals.p).label, "s": spec_of(goals.s).label},
        "palette": {"light": PALETTE, "dark": DARK_PALETTE},
        "splits": list(comparison.splits),
        "sides": [_side_values(side, comparison) for side in comparison.sides],
        "limits": {split: _common_limits(comparison, split) for split in comparison.splits},
    }


def _names(comparison: SideBySide) -> str:
    return ", ".join(escape_controls(side.label) for side in comparison.sides)


def _side_values(side: Side, comparison: SideBySide) -> Json:
    """Return a run's label and its points on each split; ``knee`` is an index, or None."""
    goals = comparison.goals
    members = side.front.members
    knee = next((index for index, member in enumerate(members) if member.is_knee), None)
    fronts = {}
    for split in comparison.splits:
        points = side.front.on(split)
        fronts[split] = [
            {"name": point.name, "value": [scaled(point[goals.s]), scaled(point[goals.p])]}
            for point in points
        ]
    return {"label": escape_controls(side.label), "knee": knee, "fronts": fronts}


def _common_limits(comparison: SideBySide, split: ScoredSplit) -> Json:
    """Return the oracle front and the reference from the first run that stores them; they are the same for all."""
    limits = [compared_points(side.summary, split) for side in comparison.sides]
    return {
        name: next((each[name] for each in limits if each[name]), None)
        for name in ("oracle", "reference")
    }
