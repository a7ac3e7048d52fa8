"""The box of commands that usually follow a sweep: export, another trade-off, more trials."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from raysweep.output import escape_html
from raysweep.report.choice import export_command, probe_command
from raysweep.report.page.markup import join, paragraph, section
from raysweep.report.summary import Summary
from raysweep.results.commands import format_command, format_resume, resume_options


class Step(NamedTuple):
    """A command with its purpose."""

    text: str
    command: str


def next_steps(summary: Summary) -> str:
    """Return the section, or nothing for a run without a knee."""
    items = []
    for step in steps(summary):
        command = f'<code class="command">{escape_html(step.command)}</code>'
        items.append(f"<li>{paragraph(step.text)}{command}</li>")
    return (
        section("next", "What to do next", f'<ul class="card steps">{join(items)}</ul>')
        if items
        else ""
    )


def steps(summary: Summary) -> Iterator[Step]:
    """Yield the commands: for the knee, for points with as much S but more P, and for a longer sweep."""
    knee = next((member.dev for member in summary.members if member.is_knee), None)
    if knee is None:
        return
    results = summary.results
    floors = [front.floor for front in summary.uncertainty.values()]
    if any(floor and floor.is_better for floor in floors) and (command := probe_command(summary)):
        yield Step(
            "Export the probe, which needs no training and is better than the front:", command
        )
    yield Step(
        f"Export the knee, trial {knee.trial} at rung {knee.step}:",
        export_command(summary, knee.name),
    )
    p, s = summary.goals.headings
    limit = math.floor(100 * knee[summary.goals.s])
    condition = f"{summary.goals.s} >= {limit}"
    show = format_command("show", results.folder, "--where", condition, "--best", summary.goals.p)
    yield Step(
        f"Look at another trade-off, such as the highest {p} with {s} of at least {limit}:", show
    )
    if results.status != "running":
        options = resume_options(results) or ["--trials", str(2 * results.info.num_trials)]
        yield Step(
            "Continue the sweep with a larger budget:", format_resume(results.folder, *options)
        )
