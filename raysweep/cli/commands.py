"""The subcommands. Each one imports its dependencies when it is called, which keeps --help fast."""

import datetime
import io
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from raysweep.cli import choosing, usage
from raysweep.cli.options import (
    SeveralValues,
    given_path,
    here,
    naturals,
    new_here,
    not_empty,
    one_of,
    run_folder,
    several_of,
    where_of,
    with_trials,
)
from raysweep.cli.tables import print_widest
from raysweep.errors import InputError
from raysweep.version import __version__

if TYPE_CHECKING:
    import rich.table

    from raysweep.config.load import LoadedSweep
    from raysweep.data.inventory import StoredArtifact
    from raysweep.evaluation.score_files import FileScores
    from raysweep.report.summary import Summary
    from raysweep.storage.folder import Folder

OVERRIDES = {"allow_extra_args": True, "ignore_unknown_options": True}

FORMATS = ("table", "json")

LONGEST_PAUSE = 86_400  # seconds

OVERRIDE_HELP = (
    "Any key of the file can be overridden by its dotted path: --budget.trials 40, --data.train reviews.csv, "
    "--space.learning_rate '{low: 1e-6, high: 1e-4, log: true}'."
)

app = typer.Typer(
    name="raysweep",
    help="Sweep hyperparameters for fine-tuning sentence embeddings on Ray and find the Pareto front of "
    "polarity (retrieved sentences share the query's class) against similarity (they are close to it "
    "under the frozen reference encoder).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SpaceFile = Annotated[str, typer.Argument(metavar="SPACE", help="YAML file, or name of a shipped space such as demo.")]

Run = Annotated[str, typer.Argument(metavar="RUN", help="Folder or URI of a run, finished or not.")]

Trials = Annotated[int | None, typer.Option(min=1, help="Short for --budget.trials.")]


@app.callback(invoke_without_command=True)
def _main(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        typer.echo(f"raysweep {__version__}")
        raise typer.Exit


@app.command(context_settings=OVERRIDES, epilog=OVERRIDE_HELP)
def run(  # noqa: PLR0913 (the options of a command)
    context: typer.Context,
    space: Annotated[
        str | None,
        typer.Argument(metavar="SPACE", help="YAML file, or name of a shipped space; optional with --resume."),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Resume a run that was interrupted or killed, or extend one."),
    ] = None,
    warm_start: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN", help="Learn from this older run, which may use other data or models; repeatable."),
    ] = None,
    trials: Trials = None,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="With --resume: take over a run in an object store from another process that still drives it.",
        ),
    ] = False,
    resume_or_start: Annotated[
        bool,
        typer.Option(
            "--resume-or-start",
            help="Resume the run NAME of storage.runs if it exists, else start it, so that the same command can be "
            "repeated. NAME is the key name of the file, or --name NAME. A run that failed permanently is "
            "only reported.",
        ),
    ] = False,
) -> None:
    """Run a complete sweep: prepare, search, score the front on test, and write the report.

    Artifacts of the same data, encoder and mining settings are reused. Ctrl-C ends the search and still writes the
    report. A resumed run may have a larger budget, and a SPACE that only extends its own.

    The exit code is 0 if the search is complete or has reached its budget or a plateau; 1 if the sweep failed or no
    trial finished a rung; 2 for invalid input or storage failures; 130 after Ctrl-C or SIGTERM.
    """
    from raysweep.config.load import find_space, parse_overrides
    from raysweep.terminal import undisturbed, working

    arguments = with_trials(context.args, trials)
    if space is not None and space.startswith("--"):  # SPACE was omitted; this is an override
        arguments, space = [space, *arguments], None
    _warn_of_retries(arguments, resumes=resume is not None or resume_or_start)
    resumed = None
    if take_over and resume is None and not resume_or_start:
        raise InputError("--take-over goes with --resume RUN or --resume-or-start")
    place = None
    if resume_or_start:
        if resume is not None or space is None:
            raise InputError("--resume-or-start goes with SPACE, and not with --resume RUN")
        place, has_begun = _named_run(space, arguments)
        resume = place if has_begun else None
    if resume is not None:
        if warm_start and place is None:
            raise InputError("--warm-start is for new runs; a resumed one has what it began with")
        from raysweep.controller.resume import load_resumed

        space_file = None if space is None else find_space(space)
        loaded, resumed = load_resumed(
            run_folder("--resume", resume), space_file, parse_overrides(arguments), _warn, take_over=take_over
        )
    elif space is None:
        raise InputError("SPACE is missing: a YAML file or the name of a shipped space, or --resume RUN")
    else:
        loaded = _load(space, arguments)
    from raysweep.ray_tune import run as runner

    with working() as (display, log):
        outcome = runner.run(
            loaded.config,
            loaded.space,
            display,
            log,
            resumed=resumed,
            warm_start=[run_folder("--warm-start", each) for each in warm_start or () if resumed is None],
            place=place,
        )
    with undisturbed(outcome.interrupted):
        summary = _report(outcome.run)
    if outcome.interrupted:
        raise typer.Exit(130)
    if summary.results.status == "failed" or not summary.members:
        raise typer.Exit(1)


def _warn_of_retries(arguments: list[str], *, resumes: bool) -> None:
    """Warn if this command is a Ray job and a retry would start another run."""
    from raysweep.cluster.resources import is_ray_job
    from raysweep.config.load import parse_overrides

    if resumes or not is_ray_job():
        return
    is_named = "name" in dict(parse_overrides(arguments))
    missing = "--resume-or-start" if is_named else "--name NAME --resume-or-start"
    _warn(f"if this Ray job is retried, it starts a new run; to resume this one instead, add {missing}")


def _named_run(space: str, arguments: list[str]) -> tuple[str, bool]:
    """Return where the run with the sweep's own name is stored, and whether it has started.

    If the run failed permanently, report it again and exit with code 1.
    """
    from raysweep.api.functions import load_sweep
    from raysweep.config.load import parse_overrides
    from raysweep.controller.resume import read_state
    from raysweep.storage import location

    config = load_sweep(space, parse_overrides(arguments)).config
    place = location.join(config.storage.runs, config.name)
    state = read_state(place)
    if state.failure is not None:
        _report(run_folder("--resume-or-start", place))
        typer.echo(f"run: not started again, since it failed for good ({state.failure})")
        typer.echo(f"run: to resume it anyway: raysweep run --resume {shlex.quote(place)}")
        raise typer.Exit(1)
    return place, state.has_begun


@app.command(context_settings=OVERRIDES, epilog=OVERRIDE_HELP)
def prepare(context: typer.Context, space: SpaceFile) -> None:
    """Only prepare a sweep: sentences, tokens, reference embeddings, neighbors and examples.

    Prints the path of the file that raysweep.open_prepared takes, for running trials in-process from Python.
    """
    from raysweep.ray_tune import run as runner
    from raysweep.terminal import working

    loaded = _load(space, context.args)
    with working() as (display, _):
        path = runner.prepare_only(loaded.config, loaded.space, display)
    typer.echo(path)


@app.command()
def evaluate(  # noqa: PLR0913 (the options of a command)
    model: Annotated[str, typer.Option(help="Encoder to score: a folder, a hub name, or 'demo'.")],
    train: Annotated[str, typer.Option(help="Labeled sentences from which the retrieval pool is sampled.")],
    test: Annotated[str, typer.Option(help="Labeled sentences; each row is a query.")],
    reference: Annotated[
        str | None, typer.Option(help="Encoder that defines similarity; the model itself if not given.")
    ] = None,
    k: Annotated[
        str, typer.Option(help="Retrieved sentences per query; one or more values separated by commas.")
    ] = "16",
    rank_weights: Annotated[str, typer.Option(help="uniform, linear, or both separated by a comma.")] = "uniform",
    num_pool: Annotated[
        int | None, typer.Option(min=1, help="Pool size; min(train, 5 * queries) if not given.")
    ] = None,
    pool_seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed for sampling the pool.")] = 42,
    text_column: Annotated[str, typer.Option(help="Column of the sentences.")] = "text",
    label_column: Annotated[str, typer.Option(help="Column of the labels.")] = "label",
    prompt: Annotated[
        str | None,
        typer.Option(
            help="Text added before every sentence, such as 'query: ', or '' for none; each model's own if not given."
        ),
    ] = None,
    precision: Annotated[str, typer.Option(help="Precision of the scored encoder: fp32, or bf16 (autocast).")] = "fp32",
    format: Annotated[str, typer.Option(help="Output format: table or json.")] = "table",
    to: Annotated[
        Path | None,
        typer.Option(
            parser=given_path,
            metavar="FOLDER",
            help="Also write the scores by k to this folder: Markdown, LaTeX, CSV and a figure.",
        ),
    ] = None,
) -> None:
    """Score any encoder by retrieval, without training: polarity P and similarity S, x100."""
    from raysweep.config.sweep import EncoderConfig
    from raysweep.metrics.retrieval import RankWeights
    from raysweep.terminal import working

    for flag, text in (("--model", model), ("--train", train), ("--test", test)):
        not_empty(flag, text)
    ks = naturals("--k", k)
    all_weights: tuple[RankWeights, ...] = get_args(RankWeights)
    kinds = several_of("--rank-weights", rank_weights, all_weights)
    one_of("--format", format, FORMATS)
    arithmetic: Literal["fp32", "bf16"] = one_of("--precision", precision, ("fp32", "bf16"))
    if to is not None:
        from raysweep.paper.write import check_writable

        check_writable(here("--to", to))
    from raysweep.evaluation import score_files

    with working() as (display, _):
        results = score_files.score_files(
            EncoderConfig(name=model, prompt=prompt, precision=arithmetic),
            EncoderConfig(name=reference, prompt=prompt) if reference else None,
            score_files.LabeledFiles(train, test, text_column, label_column),
            score_files.RetrievalSettings(ks, kinds, num_pool, pool_seed),
            display,
        )
    if format == "json":
        _print_json(results)
    else:
        _print_table(_scores_table(results))
    if to is not None:
        _write_by_k(model, train, test, results, to)
        typer.echo(f"tables: {to}", err=format == "json")


def _write_by_k(model: str, train: str, test: str, results: "Sequence[FileScores]", to: Path) -> None:
    from raysweep.paper.by_k import ByK, ScoresAtK
    from raysweep.paper.recording import last_part
    from raysweep.paper.write import write_by_k

    measured = f"Queries are the rows of {last_part(test)}, the pool is sampled from {last_part(train)}."
    write_by_k(ByK.of([ScoresAtK(last_part(model), **row) for row in results], measured), to)


@app.command(cls=SeveralValues)
def transfer(  # noqa: PLR0913 (the options of a command)
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL", help="Encoders to compare: folders, hub names, or 'demo'.")
    ],
    tasks: Annotated[
        list[str],
        typer.Option(
            metavar="TASK...",
            help="One or more of [NAME=]FILE or, with a given split, [NAME=]TRAIN,TEST or [NAME=]TRAIN,DEV,TEST: "
            "labeled sentences or scored pairs.",
        ),
    ],
    tuned_on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE...",
            help="Data on which a model was tuned; task sentences that occur in it are counted. Exported models "
            "record their own.",
        ),
    ] = None,
    folds: Annotated[
        int, typer.Option(min=2, help="Number of cross-validation folds for tasks without a given split.")
    ] = 10,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed for assigning rows to folds.")] = 0,
    text_column: Annotated[str, typer.Option(help="Column of the labeled sentences.")] = "text",
    label_column: Annotated[str, typer.Option(help="Column of the labels.")] = "label",
    score_column: Annotated[str, typer.Option(help="Column of the gold scores of pairs.")] = "score",
    pair_columns: Annotated[
        str, typer.Option(metavar="FIRST,SECOND", help="Columns of the sentences of pairs.")
    ] = "sentence1,sentence2",
    prompt: Annotated[
        str | None,
        typer.Option(help="Text added before every sentence, or '' for none; each model's own if not given."),
    ] = None,
    precision: Annotated[str, typer.Option(help="Precision of the encoders: fp32, or bf16 (autocast).")] = "fp32",
    format: Annotated[str, typer.Option(help="Output format: table, json or csv.")] = "table",
) -> None:
    """Compare frozen encoders on other tasks, without training: classification and correlation, x100.

    For labeled sentences, a logistic regression on the embeddings is tested. For scored pairs, the Spearman
    correlation of cosines with gold scores is computed.
    """
    from raysweep.terminal import working

    for flag, values in (("MODEL", models), ("--tasks", tasks), ("--tuned-on", tuned_on or [])):
        for value in values:
            not_empty(flag, value)
    one_of("--format", format, (*FORMATS, "csv"))
    arithmetic: Literal["fp32", "bf16"] = one_of("--precision", precision, ("fp32", "bf16"))
    first, _, second = pair_columns.partition(",")
    if not (first and second) or "," in second:
        raise InputError(f"--pair-columns is {pair_columns!r}; it is FIRST,SECOND")
    from raysweep.evaluation.tasks import figures
    from raysweep.evaluation.tasks.compare import Settings, compare
    from raysweep.evaluation.tasks.scored_pairs import PairColumns
    from raysweep.evaluation.tasks.tasks import Columns

    columns = Columns(text_column, label_column, PairColumns(score_column, first, second))
    with working() as (display, _):
        settings = Settings(columns, folds, seed, prompt, arithmetic)
        compared = compare(models, tasks, tuned_on or [], settings, display)
    if format == "json":
        _print_json(figures.as_json(compared))
    elif format == "csv":
        typer.echo(figures.as_csv(compared), nl=False)
    else:
        typer.echo(figures.title(compared))
        _print_table(figures.table(compared))
        for note in figures.notes(compared):
            typer.echo(f"note: {note}")


@app.command()
def report(
    run: Run,
    to: Annotated[
        Path | None,
        typer.Option(parser=given_path, metavar="FOLDER", help="Folder for the report; RUN/report if not given."),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=1,
            max=LONGEST_PAUSE,
            help="Rewrite the report every N seconds if the run changed, until the sweep ends.",
        ),
    ] = None,
) -> None:
    """Write a run's report from its stored results: tables of the front, figures, report.html. Needs no cluster.

    With --every, the report is kept up to date while the sweep runs, and written a last time when the sweep has ended.
    """
    folder, place = run_folder("RUN", run), to and here("--to", to)
    try:
        if every is not None:
            _report_until_the_end(folder, every, place)
        _report(folder, place)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command(context_settings=OVERRIDES, epilog=OVERRIDE_HELP)
def validate(context: typer.Context, space: SpaceFile, trials: Trials = None) -> None:
    """Check a sweep's file and show its search space, without accessing data, models or a cluster."""
    loaded = _load(space, with_trials(context.args, trials))
    typer.echo(f"{space}: valid")
    for line in _description(loaded):
        typer.echo(line)
    typer.echo(
        "Freezing levels are checked against the encoder, k against the pool, and the files of data and guards are read, "
        "when the sweep runs."
    )


@app.command()
def control(  # noqa: PLR0913 (the options of a command)
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder or URI of a running sweep.")],
    pause: Annotated[
        bool, typer.Option("--pause", help="Start no new trials or rungs; running trials finish their rung.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume after a pause.")] = False,
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Run at most N trials at a time from now on.")
    ] = None,
    stop_trial: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Stop trial N for good; its scores are kept.")
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
    wait: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="Seconds to wait for a response.")] = 30,
) -> None:
    """Control a running sweep with one of --pause, --resume, --workers, --stop-trial and --try.

    Sends a request to the sweep's driver, waits for it to act, and prints its response. Changes also apply to a
    resumed sweep. Exit code 2 if the request is rejected, 1 if there is no response in time.
    """
    from raysweep.control import command
    from raysweep.control.request import Request, plain

    asked = {"--pause": pause, "--resume": resume, "--workers": workers, "--stop-trial": stop_trial, "--try": try_}
    given = [flag for flag, value in asked.items() if value is not None and value is not False]
    if len(given) != 1:
        raise InputError(f"give one of {', '.join(asked)}; given: {', '.join(given) or 'none'}")
    if try_ is not None:
        request = command.try_request(try_)
    elif workers is not None:
        request = Request(action="workers", workers=workers)
    elif stop_trial is not None:
        request = Request(action="stop-trial", trial=stop_trial)
    else:
        request = Request(action="pause" if pause else "resume")
    folder = run_folder("RUN", run)
    try:
        answer = command.ask(folder, request, wait)
    except KeyboardInterrupt:
        typer.echo("interrupted; the request was taken back, unless it was done by then", err=True)
        raise typer.Exit(130) from None
    if answer is None:
        typer.echo(f"{folder.location}: no answer within {wait:g} s; the request is left for the driver", err=True)
        raise typer.Exit(1)
    if not answer.accepted:
        raise InputError(plain(answer.text))
    typer.echo(plain(answer.text))


@app.command()
def watch(
    run: Run,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.2, max=LONGEST_PAUSE, help="Seconds between updates.")
    ] = 5,
    once: Annotated[bool, typer.Option("--once", help="Show the current state of the run, and exit.")] = False,
) -> None:
    """Show a running sweep: its trials, and its front as a table and as a text plot.

    Ends with the sweep, or if no driver is alive, and then shows how to resume the run. If the output is a file or a
    pipe, prints a line for each change, and the full view at the end. Writes nothing to the run.
    """
    from raysweep.report.watch import command

    folder, console = run_folder("RUN", run), command.console_for_output()
    try:
        if once:
            command.watch_once(folder, console)
        else:
            command.watch(folder, console, every)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command()
def schema() -> None:
    """Print the JSON schema of a sweep's file, for YAML completion and validation in editors."""
    import json

    from raysweep.config.schema import sweep_schema

    typer.echo(json.dumps(sweep_schema(), indent=2))


@app.command()
def export(
    run: Run,
    to: Annotated[
        Path, typer.Argument(parser=given_path, metavar="FOLDER", help="Folder for the model; must not exist.")
    ],
    point: Annotated[
        str,
        typer.Option(
            help="knee, best (by the objective), or the name of a member: TRIAL:STEP, TRIAL:STEP:concat=0.3, ..."
        ),
    ] = "knee",
    push: Annotated[
        str | None, typer.Option(metavar="OWNER/NAME", help="Also upload the model to this repository on the hub.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="With --push: create a private repository.")] = False,
) -> None:
    """Write a front member as an ordinary sentence-transformers model with its card.

    SentenceTransformer(FOLDER) loads it.
    """
    from raysweep.export import hub
    from raysweep.terminal import working

    if private and push is None:
        raise InputError("--private goes with --push OWNER/NAME")
    if push is not None:
        hub.check_name(push)
    folder = new_here("FOLDER", to)
    from raysweep.export.export import export as write

    with working():
        described = write(run_folder("RUN", run), point, folder, push)
    typer.echo(described)
    if push is not None:
        with working():
            address = hub.push(folder, push, private=private)
        typer.echo(f"pushed: {address}")


@app.command()
def table(
    run: Run,
    to: Annotated[Path, typer.Argument(parser=given_path, metavar="FILE", help="A .csv or .parquet file to write.")],
) -> None:
    """Write a run as a recorded table: every configuration, rung and operating point, numbers only, for replay."""
    from raysweep.replay import table_io
    from raysweep.results import reader

    file = new_here("FILE", to)
    typer.echo(f"{to}: {table_io.write(reader.load(run_folder('RUN', run)), file)} trials")


@app.command()
def tables(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="Folders or URIs of runs, recorded tables (.csv, .tsv, .parquet), or by_k.csv of evaluate.",
        ),
    ],
    to: Annotated[
        Path,
        typer.Option(
            parser=given_path, metavar="FOLDER", help="Folder for the tables; those of an earlier call are overwritten."
        ),
    ],
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE",
            help="Use only configurations with this value of a parameter, of model or of dataset; repeatable.",
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="dev or test; if not given, test if all points of a table have scores on it, else dev."),
    ] = None,
    z_test: Annotated[
        str | None,
        typer.Option(metavar="ROW", help="Also run two-proportion z-tests of P against this row, such as reference."),
    ] = None,
) -> None:
    """Write tables and figures for papers: Markdown, LaTeX and CSV.

    The tables show P and S by loss, margin and model; by examples per rung; the best of each loss by rung; and by k,
    from the output of evaluate. Tables for which the data is missing are omitted, with a note that gives the reason.
    """
    from raysweep.paper.write import write_tables
    from raysweep.results.types import ScoredSplit
    from raysweep.storage.location import is_uri

    splits: tuple[ScoredSplit, ...] = get_args(ScoredSplit)
    wanted = None if split is None else one_of("--split", split, splits)
    places = [
        run_folder("RUN", source) if is_uri(source) or Path(source).is_dir() else Path(source) for source in sources
    ]
    written = write_tables(places, here("--to", to), where_of(where or []), wanted, z_test)
    for name, files in written.files.items():
        typer.echo(f"{name}: {', '.join(file.suffix for file in files)}")
    for name, reason in written.left_out.items():
        typer.echo(f"note: {name} is left out: {reason}")
    typer.echo(f"tables: {to}")


@app.command(cls=SeveralValues)
def track(
    run: Run,
    to: Annotated[
        list[str],
        typer.Option(metavar="TRACKER...", help="tensorboard, mlflow, wandb or trackio; several separated by spaces."),
    ],
    folder: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="For tensorboard and wandb: output folder.")
    ] = None,
    uri: Annotated[str | None, typer.Option(metavar="URI", help="For mlflow: tracking URI.")] = None,
    project: Annotated[
        str | None, typer.Option(metavar="NAME", help="For mlflow, wandb and trackio: project or experiment.")
    ] = None,
    mode: Annotated[str | None, typer.Option(metavar="MODE", help="For wandb: offline or online.")] = None,
) -> None:
    """Write a run, finished or not, to trackers: a run for each trial, a step for each rung, and the front.

    Data that a tracker already has is not written again. Settings that are not given are those of the run's own file.
    """
    from raysweep.terminal import working
    from raysweep.trackers import tracking

    options = {"folder": folder, "uri": uri, "project": project, "mode": mode}
    given = {key: value for key, value in options.items() if value is not None}
    place = run_folder("RUN", run)
    with working():
        filled = tracking.fill(tracking.settings(place, to, given), place)
    typer.echo(f"tracked: {', '.join(filled)}")


@app.command()
def replay(  # noqa: PLR0913 (the options of a command)
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Recorded table, or the folder or URI of a run.")],
    sampler: Annotated[
        str, typer.Option(help="mfgp, tpe, gp, nsga2, random or package:Class; several separated by commas.")
    ] = "mfgp",
    policy: Annotated[
        str, typer.Option(help="growth, pareto, asha, median or none; several separated by commas.")
    ] = "growth",
    proposals: Annotated[
        str, typer.Option(help="What the sampler maximizes: front, area, combined, parego or both.")
    ] = "front",
    reduction_factor: Annotated[int, typer.Option(min=2, help="Reduction factor of pareto and asha.")] = 2,
    workers: Annotated[int, typer.Option(min=1, help="Simulated workers.")] = 1,
    seeds: Annotated[int, typer.Option(min=1, help="Number of searches; medians over them are shown.")] = 20,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Use only rows whose column has this value; repeatable."),
    ] = None,
    format: Annotated[str, typer.Option(help="table or json.")] = "table",
) -> None:
    """Simulate searches on a recorded sweep, in seconds and without training: hypervolume against training budget.

    Each proposal is replaced by the nearest recorded configuration that has not been used yet, and the sampler
    receives the replacement.
    """
    from raysweep.config.sweep import Aim, Policy
    from raysweep.replay.compare import CompareSettings, compare_searches
    from raysweep.storage.location import is_uri
    from raysweep.terminal import working

    all_policies: tuple[Policy, ...] = get_args(Policy)
    all_aims: tuple[Aim, ...] = get_args(Aim)
    one_of("--format", format, FORMATS)
    settings = CompareSettings(
        samplers=sampler.split(","),
        policies=several_of("--policy", policy, all_policies),
        proposals=one_of("--proposals", proposals, all_aims),
        reduction_factor=reduction_factor,
        num_workers=workers,
        num_seeds=seeds,
    )
    with working() as (display, _):
        source = run_folder("TABLE", table) if is_uri(table) else Path(table)
        found = compare_searches(source, where_of(where or []), settings, display)
    if format == "json":
        _print_json(found.figures)
    else:
        typer.echo(found.title)
        _print_table(found.table)


@app.command()
def artifacts(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="Folder or URI of artifacts: storage.artifacts of a sweep.")
    ] = "raysweep-runs/artifacts",
    unused_for: Annotated[
        float | None,
        typer.Option(metavar="DAYS", min=0, help="Only list artifacts that no sweep has used for this many days."),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove the listed artifacts; requires --unused-for (0 days for all).")
    ] = False,
) -> None:
    """List the artifacts of sweeps, with size and last use; with --prune, remove them.

    A sweep that needs a removed artifact builds it again. Running sweeps may still need artifacts that they have read:
    choose --unused-for accordingly.
    """
    from raysweep.data import inventory

    if prune and unused_for is None:
        raise InputError("--prune needs --unused-for DAYS; 0 removes everything that was prepared")
    store = run_folder("FOLDER", folder)
    stored = inventory.stored_artifacts(store)
    if not stored and store.names("artifacts"):
        raise InputError(f"{folder}: holds no artifacts itself; {folder}/artifacts does")
    found = [each for each in stored if each.days_unused >= (unused_for or 0)]
    if prune:
        found = inventory.remove(found, store)
    _print_table(_artifacts_table(found))
    total = _mebibytes(sum(each.num_bytes for each in found))
    typer.echo(f"artifacts: {len(found)}, {total} MiB{', removed' if prune else ''}")


def _artifacts_table(found: "Sequence[StoredArtifact]") -> "rich.table.Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table("artifact", "MiB", "last used", box=SIMPLE_HEAD, pad_edge=False)
    table.columns[1].justify = "right"
    for each in found:
        unfinished = "" if each.is_whole else " (unfinished)"
        used_at = datetime.datetime.fromtimestamp(each.used_at)
        table.add_row(f"{each.name}{unfinished}", _mebibytes(each.num_bytes), f"{used_at:%Y-%m-%d %H:%M}")
    return table


def _mebibytes(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.1f}"


choosing.add_to(app)


def _load(space: str, arguments: list[str]) -> "LoadedSweep":
    """Load the sweep SPACE with the command line's overrides, and print its warnings."""
    from raysweep.api.functions import load_sweep
    from raysweep.config.load import parse_overrides

    loaded = load_sweep(space, parse_overrides(arguments))
    for text in loaded.warnings:
        _warn(text)
    return loaded


def _description(loaded: "LoadedSweep") -> Iterator[str]:
    config = loaded.config
    budget = config.budget
    examples = budget.examples_per_trial
    rungs = "1 rung" if budget.rungs == 1 else f"up to {budget.rungs} rungs"
    length = f"{rungs} each" if examples is None else f"{examples:,} examples each"
    search = f"{_trials(loaded)}, {length}, early stopping: {config.early_stopping.policy}"
    replicates = f", up to {config.replicates.trials} replicates" if config.replicates.trials else ""
    yield f"sweep {config.name}: {search}{replicates}"
    yield f"  limits: {', '.join(config.limits) or 'none'}"
    for line in loaded.space.describe():
        yield f"  {line}"
    for values in config.first:
        yield f"  first: {', '.join(f'{name} {value}' for name, value in values.items())}"


def _trials(loaded: "LoadedSweep") -> str:
    num_trials, sampler = loaded.config.budget.trials, loaded.config.sampler
    if sampler == "grid" and (num_combinations := len(loaded.space.grid())) < num_trials:
        return f"{num_combinations} trials (grid, every combination; budget.trials is {num_trials})"
    return f"{num_trials} trials ({sampler})"


def _warn(text: str) -> None:
    typer.echo(f"warning: {text}", err=True)


def _report_until_the_end(run: "Folder", seconds: float, to: Path | None) -> None:
    """Rewrite the report whenever the run has changed, until no driver is alive."""
    from raysweep.report import write as reports
    from raysweep.report.watch.changes import changes
    from raysweep.report.watch.view import View

    for moment in changes(run, seconds):
        reports.write(run, to)
        typer.echo(f"written: {View(moment).line}")


def _report(run: "Folder", to: Path | None = None) -> "Summary":
    """Write and print the report, and return its summary."""
    from raysweep.report import write as reports
    from raysweep.report.notes import notes
    from raysweep.report.terminal import terminal_tables
    from raysweep.storage import location

    written = reports.write(run, to)
    if written.summary.members:
        print_widest(terminal_tables(written.summary))
    for note in notes(written.summary):
        typer.echo(f"note: {note}")
    typer.echo(f"report: {location.join(written.location, 'report.html')}")
    if location.is_uri(written.location):  # browsers cannot open it
        typer.echo(f"to read it: raysweep report {shlex.quote(run.location)} --to FOLDER")
    return written.summary


def _scores_table(results: Sequence[Mapping[str, Any]]) -> "rich.table.Table":
    from rich.table import Table

    table = Table("k", "rank weights", "P", "std", "S", "std", "accuracy")
    for row in results:
        table.add_row(*(f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()))
    return table


def _print_table(table: "rich.table.Table") -> None:
    from rich.console import Console

    Console(emoji=False).print(table)


def _print_json(value: object) -> None:
    import json

    typer.echo(json.dumps(value, indent=1))


def main() -> None:
    """Run the command line; invalid input, misuse, and file or disk space errors exit with one line and code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character outside the output's encoding must not end a sweep
            stream.reconfigure(errors="replace")
    try:
        sys.exit(usage.run(app))
    except InputError as error:
        typer.echo(f"error: {error}", err=True)
    except usage.USAGE_ERROR as error:
        if misuse := usage.problem(error):
            typer.echo(f"error: {misuse}", err=True)
    except OSError as error:
        from raysweep.storage.failure import file_problem

        problem = file_problem(error)
        if problem is None:
            raise
        typer.echo(f"error: {problem}", err=True)
    sys.exit(2)


if __name__ == "__main__":
    main()
