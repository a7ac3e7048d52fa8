"""Commands for sweep files and artifacts: run, prepare, validate, schema and artifacts."""

from typing import TYPE_CHECKING, Annotated

import typer

from raysweep.cli import panels
from raysweep.cli.options import (
    FORMATS,
    FrontFormat,
    LogLevel,
    Quiet,
    Verbose,
    check_one_of,
    check_verbosity,
    run_folder,
    with_trials,
)
from raysweep.cli.output import print_json, report_run, warn
from raysweep.errors import InputError
from raysweep.output import TextTable, counted, print_table

if TYPE_CHECKING:
    from raysweep.config.load import LoadedSweep

OVERRIDES = {"allow_extra_args": True, "ignore_unknown_options": True}

OVERRIDE_HELP = (
    "Any key of the file can be overridden by its dotted path: --budget.trials 40, --data.train reviews.csv, "
    "--space.learning_rate '{low: 1e-6, high: 1e-4, log: true}'."
)

SpaceFile = Annotated[
    str, typer.Argument(metavar="SPACE", help="YAML file, or name of a shipped space such as demo.")
]

Trials = Annotated[int | None, typer.Option(min=1, help="Short for --budget.trials.")]

app = typer.Typer()


@app.command(context_settings=OVERRIDES, epilog=OVERRIDE_HELP, rich_help_panel=panels.STEER)
def run(  # noqa: PLR0913 (the options of a command)
    context: typer.Context,
    space: Annotated[
        str | None,
        typer.Argument(
            metavar="SPACE", help="YAML file, or name of a shipped space; optional with --resume."
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Resume a run that was interrupted or killed, or extend a finished one.",
        ),
    ] = None,
    warm_start: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN",
            help="Learn from this older run, which may use other data or models; repeatable.",
        ),
    ] = None,
    trials: Trials = None,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="With --resume or --resume-or-start: take over a run in an object store from another process that is still "
            "driving it.",
        ),
    ] = False,
    resume_or_start: Annotated[
        bool,
        typer.Option(
            "--resume-or-start",
            help="Resume the run NAME in storage.runs if it exists, else start it, so that the same command can be "
            "repeated. NAME is set by the file's name key or by --name. A run that failed permanently is not resumed; "
            "only its report is printed.",
        ),
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_level: LogLevel = None,
    format: FrontFormat = "table",
) -> None:
    """Run a complete sweep: prepare, search, score the front on test, and write the report.

    Artifacts for the same data, encoder and mining settings are reused. Ctrl-C ends the search, and the report is still
    written. A resumed run may have a larger budget, and a SPACE that only extends the old one.

    The exit code is 0 if the search is complete or has reached its budget or a plateau, 1 if the sweep failed or no
    trial finished a rung, 2 for invalid input, 75 for temporary failures (storage, stalled preparation), and 130 after
    Ctrl-C or SIGTERM.
    """
    from raysweep.config.load import find_space, parse_overrides
    from raysweep.terminal import undisturbed, working

    check_one_of("--format", format, FORMATS)
    verbosity = check_verbosity(quiet, verbose, log_level)
    arguments = with_trials(context.args, trials)
    if space is not None and space.startswith("--"):  # SPACE was omitted, and this is an override
        arguments, space = [space, *arguments], None
    _warn_of_retries(arguments, resumes=resume is not None or resume_or_start)
    if take_over and resume is None and not resume_or_start:
        raise InputError("--take-over requires --resume RUN or --resume-or-start")
    place = None
    if resume_or_start:
        if resume is not None or space is None:
            raise InputError(
                "--resume-or-start requires SPACE, and cannot be combined with --resume RUN"
            )
        place, has_begun = _find_named_run(space, arguments, format)
        resume = place if has_begun else None
    resumed = None
    if resume is not None:
        if warm_start and place is None:
            raise InputError(
                "--warm-start is only for new runs; a resumed run keeps its original warm start"
            )
        from raysweep.controller.resume import load_resumed

        run_to_resume = run_folder("--resume", resume)
        space_file = None if space is None else find_space(space)
        overrides = parse_overrides(arguments)
        loaded, resumed = load_resumed(
            run_to_resume, space_file, overrides, warn, take_over=take_over
        )
    elif space is None:
        raise InputError(
            "SPACE is missing; required: a YAML file, the name of a shipped space, or --resume RUN"
        )
    else:
        loaded = _load(space, arguments)
    from raysweep.ray_tune import run as runner

    with working(verbosity) as (display, log):
        older_runs = [
            run_folder("--warm-start", older) for older in warm_start or () if resumed is None
        ]
        outcome = runner.run(
            loaded.config,
            loaded.space,
            display,
            log,
            resumed=resumed,
            warm_start=older_runs,
            place=place,
        )
    with undisturbed(outcome.interrupted):
        summary = report_run(outcome.run, format=format)
    if outcome.interrupted:
        raise typer.Exit(130)
    if summary.results.status == "failed" or not summary.members:
        raise typer.Exit(1)


def _warn_of_retries(arguments: list[str], *, resumes: bool) -> None:
    """Warn if this command is a Ray job whose retry would start another run."""
    from raysweep.cluster.connection import ray_job
    from raysweep.config.load import parse_overrides

    job = ray_job()
    if resumes or job is None:
        return
    is_named = "name" in dict(parse_overrides(arguments))
    missing = "--resume-or-start" if is_named else f"--name {job} --resume-or-start"
    warn(f"a retry of this Ray job starts a new run; to resume this one instead, add {missing}")


def _find_named_run(space: str, arguments: list[str], format: str) -> tuple[str, bool]:
    """Return the location of the run named in the sweep, and whether the run has started.

    If that run failed permanently, print its report again and exit with code 1.
    """
    from raysweep.api.functions import load_sweep
    from raysweep.config.load import parse_overrides
    from raysweep.controller.resume import read_state
    from raysweep.results.commands import format_resume
    from raysweep.storage import location

    config = load_sweep(space, parse_overrides(arguments)).config
    place = location.join(config.storage.runs, config.name)
    state = read_state(place)
    if state.failure is not None:
        report_run(run_folder("--resume-or-start", place), format=format)
        is_json = format == "json"
        typer.echo(
            f"run: not resumed, because it failed permanently ({state.failure})", err=is_json
        )
        typer.echo(f"run: to resume it anyway: {format_resume(place)}", err=is_json)
        raise typer.Exit(1)
    return place, state.has_begun


@app.command(context_settings=OVERRIDES, epilog=OVERRIDE_HELP, rich_help_panel=panels.STEER)
def prepare(
    context: typer.Context,
    space: SpaceFile,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_level: LogLevel = None,
) -> None:
    """Prepare a sweep without running it: sentences, tokens, reference embeddings, neighbors and examples.

    The command prints the file path to pass to raysweep.open_prepared, which allows running trials in-process from
    Python.
    """
    from raysweep.ray_tune import run as runner
    from raysweep.terminal import working

    verbosity = check_verbosity(quiet, verbose, log_level)
    loaded = _load(space, context.args)
    with working(verbosity) as (display, log):
        path = runner.prepare_only(loaded.config, loaded.space, display, log)
    typer.echo(path)


@app.command(context_settings=OVERRIDES, epilog=OVERRIDE_HELP, rich_help_panel=panels.STEER)
def validate(context: typer.Context, space: SpaceFile, trials: Trials = None) -> None:
    """Check a sweep file and show its search space, without accessing data, models or a cluster."""
    loaded = _load(space, with_trials(context.args, trials))
    typer.echo(f"{space}: valid")
    config = loaded.config
    budget = config.budget
    size = f"{counted(budget.trials, 'trial')} ({config.sampler})"
    if config.sampler == "grid":
        num_combinations = len(loaded.space.grid())
        if num_combinations < budget.trials:
            size = f"{counted(num_combinations, 'trial')} (grid, every combination; budget.trials is {budget.trials})"
    if budget.examples_per_trial is not None:
        length = f"{budget.examples_per_trial:,} examples each"
    elif budget.rungs == 1:
        length = "1 rung each"
    else:
        length = f"up to {budget.rungs} rungs each"
    parts = [size, length, f"early stopping: {config.early_stopping.policy}"]
    if config.replicates.trials:
        parts.append(f"up to {counted(config.replicates.trials, 'replicate')}")
    typer.echo(f"sweep {config.name}: {', '.join(parts)}")
    typer.echo(f"  limits: {', '.join(config.limits) or 'none'}")
    for line in loaded.space.describe():
        typer.echo(f"  {line}")
    for values in config.first:
        settings = (f"{name} {value}" for name, value in values.items())
        typer.echo(f"  first: {', '.join(settings)}")
    typer.echo(
        "Not checked: freezing levels against the encoder, k against the pool, and the contents of data and guard "
        "files."
    )


@app.command(rich_help_panel=panels.STEER)
def schema() -> None:
    """Print the JSON schema for sweep files, which lets editors complete and validate the YAML."""
    from raysweep.config.schema import sweep_schema

    print_json(sweep_schema())


@app.command(rich_help_panel=panels.STEER)
def artifacts(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER", help="Artifacts folder or URI: a sweep's storage.artifacts."
        ),
    ] = "raysweep-runs/artifacts",
    unused_for: Annotated[
        float | None,
        typer.Option(
            metavar="DAYS",
            min=0,
            help="List only artifacts that no sweep has used for this many days.",
        ),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", help="Remove the listed artifacts; requires --unused-for (0 days for all)."
        ),
    ] = False,
    format: Annotated[str, typer.Option(help="Output format: table or json.")] = "table",
) -> None:
    """List sweep artifacts with their sizes and times of last use, or remove them with --prune.

    A sweep rebuilds any removed artifact it needs. Running sweeps may still need artifacts that they have read, so
    choose --unused-for accordingly.
    """
    import datetime

    from raysweep.data import artifacts

    check_one_of("--format", format, FORMATS)
    if prune and unused_for is None:
        raise InputError("--prune requires --unused-for DAYS; 0 removes all artifacts")
    store = run_folder("FOLDER", folder)
    stored = artifacts.list_artifacts(store)
    if not stored and store.names("artifacts"):
        raise InputError(f"{folder}: contains no artifacts; use {folder}/artifacts")
    min_days = unused_for or 0
    listed = [artifact for artifact in stored if artifact.days_unused >= min_days]
    if prune:
        listed = artifacts.remove_artifacts(listed, store)
    rows = []
    objects = []
    for artifact in listed:
        name = artifact.name if artifact.is_complete else f"{artifact.name} (unfinished)"
        size = _format_mebibytes(artifact.num_bytes)
        used_at = datetime.datetime.fromtimestamp(artifact.used_at)
        rows.append((name, size, f"{used_at:%Y-%m-%d %H:%M}"))
        objects.append(
            {
                "artifact": artifact.name,
                "is_complete": artifact.is_complete,
                "bytes": artifact.num_bytes,
                "used_at": used_at.astimezone().isoformat(timespec="seconds"),
            }
        )
    if format == "json":
        print_json(objects)
        return
    columns = ("artifact", "MiB", "last used")
    print_table(TextTable(columns, tuple(rows), text=frozenset({"artifact", "last used"})))
    total = _format_mebibytes(sum(artifact.num_bytes for artifact in listed))
    ending = ", removed" if prune else ""
    typer.echo(f"artifacts: {len(listed)}, {total} MiB{ending}")


def _format_mebibytes(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.1f}"


def _load(space: str, arguments: list[str]) -> "LoadedSweep":
    """Load a sweep with overrides, and print its warnings."""
    from raysweep.api.functions import load_sweep
    from raysweep.config.load import parse_overrides

    loaded = load_sweep(space, parse_overrides(arguments))
    for text in loaded.warnings:
        warn(text)
    return loaded
