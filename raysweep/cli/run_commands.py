"""Commands for a run, finished or not: control, watch, show, compare, report, export, prune and track."""

from pathlib import Path
from typing import Annotated, get_args

import typer

from raysweep.cli import panels
from raysweep.cli.options import (
    FORMATS,
    FrontFormat,
    Prefer,
    SeveralValues,
    check_local,
    check_new,
    check_one_of,
    parse_path,
    run_folder,
    with_preference,
)
from raysweep.cli.output import print_json, report_run
from raysweep.errors import InputError
from raysweep.output import print_table

MAX_PAUSE = 86_400  # maximum seconds between updates

Run = Annotated[str, typer.Argument(metavar="RUN", help="Folder or URI of a run, finished or not.")]

app = typer.Typer()


@app.command(rich_help_panel=panels.STEER)
def control(  # noqa: PLR0913 (the options of a command)
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder or URI of a running sweep.")],
    pause: Annotated[
        bool,
        typer.Option(
            "--pause",
            help="Do not start new trials or rungs; running trials finish their current rung.",
        ),
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume after a pause.")] = False,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Run at most N trials at a time from now on."),
    ] = None,
    stop_trial: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Stop trial N permanently; its scores are kept."),
    ] = None,
    try_: Annotated[
        str | None,
        typer.Option(
            "--try",
            metavar="CONFIGURATION",
            help="Try this configuration next, such as '{loss: triplet, margin: 0.1}'; the sampler proposes "
            "omitted parameters. It counts toward budget.trials.",
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="Seconds to wait for an answer.")
    ] = 30,
) -> None:
    """Control a running sweep with one of --pause, --resume, --workers, --stop-trial and --try.

    The command sends a request to the sweep's driver, waits until the driver has acted, and prints its answer. Changes
    also apply if the sweep is resumed later. The exit code is 2 if the request is rejected, and 1 if no answer arrives
    in time.
    """
    from raysweep.control import command
    from raysweep.control.request import make_request

    actions = {
        "--pause": pause,
        "--resume": resume,
        "--workers": workers,
        "--stop-trial": stop_trial,
        "--try": try_,
    }
    chosen = [flag for flag, value in actions.items() if value is not None and value is not False]
    if len(chosen) != 1:
        raise InputError(
            f"required: exactly one of {', '.join(actions)}; given: {', '.join(chosen) or 'none'}"
        )
    if try_ is not None:
        request = command.parse_try(try_)
    else:
        request = make_request(
            chosen[0].removeprefix("--"), stop_trial if workers is None else workers
        )
    folder = run_folder("RUN", run)
    try:
        typer.echo(command.send(folder, request, wait))
    except KeyboardInterrupt:
        typer.echo(
            "interrupted; the request was withdrawn, unless the driver had already executed it",
            err=True,
        )
        raise typer.Exit(130) from None
    except TimeoutError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


@app.command(rich_help_panel=panels.STEER)
def watch(
    run: Run,
    every: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.2, max=MAX_PAUSE, help="Seconds between updates."),
    ] = 5,
    once: Annotated[
        bool, typer.Option("--once", help="Show the current state of the run and exit.")
    ] = False,
    format: Annotated[
        str, typer.Option(help="Output format: table or, with --once, json.")
    ] = "table",
) -> None:
    """Show a running sweep: its trials, and its front as a table and a text plot.

    When the sweep ends, or if no driver is alive, the command prints how to resume the run and exits. If the output
    is a file or a pipe, it prints a line for each change, and the full view at the end. It writes nothing to the run.
    """
    from raysweep.report.watch import command

    check_one_of("--format", format, FORMATS)
    if format == "json" and not once:
        raise InputError("--format json requires --once")
    folder = run_folder("RUN", run)
    console = command.console_for_output()
    try:
        if format == "json":
            print_json(command.state_as_json(folder))
        elif once:
            command.watch_once(folder, console)
        else:
            command.watch(folder, console, every)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command(rich_help_panel=panels.LOOK)
def show(  # noqa: PLR0913 (the options of a command)
    run: Run,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Show only points that meet this condition, such as 'P >= 85', 'kind = concat', 'loss != triplet' or, "
            "for a guard, 'sts-dev >= 80'; repeatable. Scores are on dev, x100 or in [0, 1].",
        ),
    ] = None,
    prefer: Prefer = None,
    best: Annotated[
        str | None,
        typer.Option(
            metavar="SCORE",
            help="Show the best point by polarity (or P), similarity (or S), retention, accuracy or objective; see "
            "--top.",
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Show the N best points, by the score of --best or by the objective.",
        ),
    ] = None,
    knee: Annotated[
        bool,
        typer.Option("--knee", help="Show the best-balanced point among those that meet --where."),
    ] = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Choose from all operating points, not only from the front."),
    ] = False,
    split: Annotated[
        str | None,
        typer.Option(
            help="Show only the scores on dev or on test; points are always chosen on dev."
        ),
    ] = None,
    format: Annotated[
        str, typer.Option(help="Output format: table, or json with scores in [0, 1].")
    ] = "table",
) -> None:
    """Show points in a run that meet conditions, with scores, configurations and export commands.

    Without options, all members of the front are shown. The exit code is 1 if no point meets the conditions.
    """
    from raysweep.report import choice, terminal
    from raysweep.report.notes import ending_notes
    from raysweep.report.summary import summary_of
    from raysweep.results.types import ScoredSplit

    check_one_of("--format", format, FORMATS)
    selection = choice.Selection(
        conditions=with_preference(where, prefer),
        by=best,
        top=top,
        knee=knee,
        everything=everything,
    )
    all_splits: tuple[ScoredSplit, ...] = get_args(ScoredSplit)
    chosen_split = None if split is None else check_one_of("--split", split, all_splits)
    summary = summary_of(run_folder("RUN", run))
    chosen = choice.choose(summary, selection)
    splits = summary.splits if chosen_split is None else (chosen_split,)
    if format == "json":
        print_json(choice.candidates_as_json(summary, chosen.candidates, splits))
    elif chosen.candidates:
        print_table(*terminal.choice_tables(summary, chosen.candidates, splits))
        for line in terminal.choice_lines(summary, chosen.candidates, splits):
            typer.echo(line)
        for note in ending_notes(summary.results):
            typer.echo(f"note: {note}")
    if not chosen.candidates:
        typer.echo(chosen.why_none, err=format == "json")
        raise typer.Exit(1)


@app.command(rich_help_panel=panels.LOOK)
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Folders or URIs of two or more runs; the others are compared with the first.",
        ),
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path,
            metavar="FOLDER",
            help="Also write an interactive page (compare.html), compare.md, compare.png and compare.json to this "
            "folder.",
        ),
    ] = None,
    format: Annotated[
        str, typer.Option(help="Output format: table, or json with scores in [0, 1].")
    ] = "table",
) -> None:
    """Compare runs on the same data: fronts, hypervolumes, dominated points and differing settings.

    Differences in hypervolume have intervals if the runs stored per-query scores.
    """
    from raysweep.report import side_by_side_texts
    from raysweep.report.side_by_side import compare_runs, read_sides
    from raysweep.report.write import write_comparison

    check_one_of("--format", format, FORMATS)
    output_folder = None if to is None else check_local("--to", to)
    if output_folder is not None and output_folder.exists() and not output_folder.is_dir():
        raise InputError(f"--to {output_folder}: is a file, not a folder")
    comparison = compare_runs(read_sides([run_folder("RUN", run) for run in runs]))
    if format == "json":
        print_json(side_by_side_texts.as_json(comparison))
    else:
        for title, table in side_by_side_texts.sections(comparison):
            typer.echo(f"{title}:")
            print_table(table)
        for note in side_by_side_texts.notes(comparison):
            typer.echo(f"note: {note}")
    if output_folder is not None:
        try:
            write_comparison(comparison, output_folder)
        except OSError as error:
            raise InputError(
                f"--to {output_folder}: cannot be written ({error.strerror})"
            ) from None
        typer.echo(f"comparison: {output_folder / 'compare.html'}", err=format == "json")


@app.command(rich_help_panel=panels.LOOK)
def report(
    run: Run,
    to: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path,
            metavar="FOLDER",
            help="Folder for the report; RUN/report if not given.",
        ),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=1,
            max=MAX_PAUSE,
            help="Rewrite the report every N seconds if the run changed, until the sweep ends.",
        ),
    ] = None,
    format: FrontFormat = "table",
) -> None:
    """Write a run's report from its stored results: tables of the front, figures and report.html.

    No cluster is needed. With --every, the report is updated while the sweep runs, and once more after it ends.
    """
    check_one_of("--format", format, FORMATS)
    folder = run_folder("RUN", run)
    output_folder = None if to is None else check_local("--to", to)
    try:
        if every is not None:
            from raysweep.report import write as reports
            from raysweep.report.watch.moment import changes
            from raysweep.report.watch.view import View

            for moment in changes(folder, every):
                reports.write(folder, output_folder)
                typer.echo(f"written: {View(moment).line}", err=format == "json")
        report_run(folder, output_folder, format)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command(rich_help_panel=panels.LOOK)
def export(  # noqa: PLR0913 (the options of a command)
    run: Run,
    to: Annotated[
        Path,
        typer.Argument(
            parser=parse_path, metavar="FOLDER", help="Folder for the model; must not exist."
        ),
    ],
    point: Annotated[
        str,
        typer.Option(
            help="knee, best (by the objective), the name of a front member (TRIAL:STEP, TRIAL:STEP:concat=0.3, ...), "
            "or a probe, such as probe=1, which needs the run's artifacts."
        ),
    ] = "knee",
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Choose the knee or best point only among those that meet this condition, such as 'width <= 384', as "
            "in show; repeatable.",
        ),
    ] = None,
    prefer: Prefer = None,
    push: Annotated[
        str | None,
        typer.Option(
            metavar="OWNER/NAME", help="Also upload the model to this repository on the hub."
        ),
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="With --push: create a private repository.")
    ] = False,
    adapter: Annotated[
        bool,
        typer.Option(
            "--adapter", help="Write only the LoRA adapter, which is loaded onto the base model."
        ),
    ] = False,
    data_set: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="For runs over data.sequence: the data set that the model is for."
        ),
    ] = None,
) -> None:
    """Write a front member as a sentence-transformers model with a model card.

    SentenceTransformer(FOLDER) loads it.
    """
    from raysweep.export import hub
    from raysweep.terminal import working

    if private and push is None:
        raise InputError("--private requires --push OWNER/NAME")
    if push is not None:
        hub.check_name(push)
    conditions = with_preference(where, prefer)
    folder = check_new("FOLDER", to)
    from raysweep.export.export import export as write

    with working() as (display, _), display.live():
        display.status(f"export: reading and checking {point} of {run}")
        description = write(
            run_folder("RUN", run),
            point,
            folder,
            push,
            as_adapter=adapter,
            conditions=conditions,
            data_set=data_set,
        )
    typer.echo(description)
    if push is not None:
        with working():
            address = hub.push(folder, push, private=private)
        typer.echo(f"pushed: {address}")


@app.command(rich_help_panel=panels.STEER)
def prune(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Folder or URI of a run that is not running.")
    ],
    checkpoints: Annotated[
        bool,
        typer.Option(
            "--checkpoints",
            help="Remove all checkpoints; paused and interrupted trials stop for good.",
        ),
    ] = False,
    weights: Annotated[
        bool,
        typer.Option(
            "--weights",
            help="Remove all weights; points can no longer be exported or scored on test.",
        ),
    ] = False,
) -> None:
    """Print the size of a run's files, and remove its checkpoints or weights.

    Without options, nothing is removed. Scores and reports are always kept.
    """
    from raysweep.controller import disk

    folder = run_folder("RUN", run)
    if checkpoints or weights:
        disk.prune(folder, checkpoints=checkpoints, weights=weights)
    typer.echo(f"{folder.location}: {disk.measure_size(folder)}")


@app.command(cls=SeveralValues, rich_help_panel=panels.LOOK)
def track(
    run: Run,
    to: Annotated[
        list[str],
        typer.Option(
            metavar="TRACKER...",
            help="One or more of tensorboard, mlflow, wandb and trackio, separated by spaces.",
        ),
    ],
    folder: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="For tensorboard and wandb: output folder.")
    ] = None,
    uri: Annotated[
        str | None, typer.Option(metavar="URI", help="For mlflow: tracking URI.")
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="For mlflow, wandb and trackio: project or experiment."),
    ] = None,
    mode: Annotated[
        str | None, typer.Option(metavar="MODE", help="For wandb: offline or online.")
    ] = None,
) -> None:
    """Write a run to trackers: a tracked run for each trial, a step for each rung, and the front.

    Data that a tracker already has is not written again. Omitted settings are taken from the run's own configuration.
    """
    from raysweep.terminal import working
    from raysweep.trackers import tracking

    options = {"folder": folder, "uri": uri, "project": project, "mode": mode}
    settings = {key: value for key, value in options.items() if value is not None}
    source = run_folder("RUN", run)
    with working():
        merged_settings = tracking.merge_settings(source, to, settings)
        trackers = tracking.fill(merged_settings, source)
    typer.echo(f"tracked in: {', '.join(trackers)}")
