"""Commands that score encoders without training: evaluate, transfer, measure and measure-run."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from raysweep.cli import panels
from raysweep.cli.options import (
    FORMATS,
    LogLevel,
    Quiet,
    SeveralValues,
    Verbose,
    check_all_of,
    check_local,
    check_model,
    check_not_empty,
    check_one_of,
    check_prompts,
    check_verbosity,
    parse_names,
    parse_path,
    parse_positive_integers,
)
from raysweep.cli.output import print_json
from raysweep.errors import InputError
from raysweep.output import TextTable, print_table

if TYPE_CHECKING:
    from raysweep.data.relation_sources import Thresholds

PRECISIONS: tuple[Literal["fp32", "bf16"], ...] = ("fp32", "bf16")

PrecisionOfAll = Annotated[
    str, typer.Option(help="Precision of the encoders: fp32, or bf16 (autocast).")
]

PromptOfAll = Annotated[
    str | None,
    typer.Option(
        help="Text added before every sentence, or '' for none; each model's default if not given."
    ),
]

PairThresholds = Annotated[
    str,
    typer.Option(
        metavar="POSITIVE,NEGATIVE",
        help="Minimum score of positive pairs and maximum score of negative pairs.",
    ),
]

GroupColumns = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN,...",
        help="Columns of all pair files that define groups, such as two languages; each group is measured separately.",
    ),
]

RelationSeed = Annotated[
    int,
    typer.Option(
        min=0, max=2**32 - 1, help="Seed for the bootstrap and for sampling labeled sentences."
    ),
]

app = typer.Typer()


@app.command(rich_help_panel=panels.DATA)
def evaluate(  # noqa: PLR0913 (the options of a command)
    model: Annotated[
        str, typer.Option(help="Encoder to score: a folder, a URI, a name on the hub, or demo.")
    ],
    train: Annotated[
        str, typer.Option(help="Labeled sentences from which the retrieval pool is sampled.")
    ],
    test: Annotated[str, typer.Option(help="Labeled sentences; each row is a query.")],
    reference: Annotated[
        str | None,
        typer.Option(help="Encoder that defines similarity; the model itself if not given."),
    ] = None,
    k: Annotated[
        str,
        typer.Option(help="Retrieved sentences per query; one or more values separated by commas."),
    ] = "16",
    rank_weights: Annotated[
        str, typer.Option(help="uniform, linear, or both separated by a comma.")
    ] = "uniform",
    num_pool: Annotated[
        int | None, typer.Option(min=1, help="Pool size; min(train, 5 * queries) if not given.")
    ] = None,
    pool_seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Seed for sampling the pool.")
    ] = 42,
    text_column: Annotated[str, typer.Option(help="Column with the sentences.")] = "text",
    label_column: Annotated[str, typer.Option(help="Column with the labels.")] = "label",
    prompt: Annotated[
        str | None,
        typer.Option(
            help="Text added before every sentence, such as 'query: ', or '' for none; the model's default if not "
            "given."
        ),
    ] = None,
    prompt_query: Annotated[
        str | None, typer.Option(help="Text added before every query, instead of --prompt.")
    ] = None,
    prompt_document: Annotated[
        str | None,
        typer.Option(help="Text added before every pool sentence, instead of --prompt."),
    ] = None,
    precision: Annotated[
        str, typer.Option(help="Precision of the scored encoder: fp32, or bf16 (autocast).")
    ] = "fp32",
    format: Annotated[str, typer.Option(help="Output format: table or json.")] = "table",
    to: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path,
            metavar="FOLDER",
            help="Also write the scores by k to this folder, as Markdown, LaTeX, CSV and a figure.",
        ),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_level: LogLevel = None,
) -> None:
    """Score an encoder by retrieval, without training it: polarity P and similarity S, x100."""
    from raysweep.config.sweep import EncoderConfig
    from raysweep.metrics.retrieval import RankWeights
    from raysweep.terminal import working

    verbosity = check_verbosity(quiet, verbose, log_level)
    check_model("--model", model)
    if reference:
        check_model("--reference", reference)
    for flag, text in (("--train", train), ("--test", test)):
        check_not_empty(flag, text)
    ks = parse_positive_integers("--k", k)
    all_weights: tuple[RankWeights, ...] = get_args(RankWeights)
    weights = check_all_of("--rank-weights", rank_weights, all_weights)
    check_one_of("--format", format, FORMATS)
    checked_precision = check_one_of("--precision", precision, PRECISIONS)
    prompts = check_prompts(prompt, prompt_query, prompt_document)
    if to is not None:
        from raysweep.paper.write import check_writable

        check_writable(check_local("--to", to))
    from raysweep.evaluation import score_files

    encoder = EncoderConfig(name=model, prompt=prompts, precision=checked_precision)
    reference_encoder = EncoderConfig(name=reference, prompt=prompts) if reference else None
    files = score_files.LabeledFiles(train, test, text_column, label_column)
    settings = score_files.RetrievalSettings(ks, weights, num_pool, pool_seed)
    with working(verbosity) as (display, _):
        scores = score_files.score_files(encoder, reference_encoder, files, settings, display)
    if format == "json":
        print_json(scores)
    else:
        columns = ("k", "rank weights", "P", "P std", "S", "S std", "accuracy")
        rows = []
        for row in scores:
            cells = [
                f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()
            ]
            rows.append(tuple(cells))
        print_table(TextTable(columns, tuple(rows), text=frozenset({"rank weights"})))
    if to is not None:
        import pandas as pd

        from raysweep.paper.model_scores import last_part
        from raysweep.paper.write import write_by_k

        note = f"Queries are the rows of {last_part(test)}; the pool is sampled from {last_part(train)}."
        names = {"polarity_mean": "polarity", "similarity_mean": "similarity"}
        frame = pd.DataFrame(scores).rename(columns=names)
        write_by_k(frame.assign(model=last_part(model)), note, to)
        typer.echo(f"layouts: {to}", err=format == "json")


@app.command(cls=SeveralValues, rich_help_panel=panels.DATA)
def transfer(  # noqa: PLR0913 (the options of a command)
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL", help="Encoders to compare: folders, URIs, names on the hub, or demo."
        ),
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
            help="Data on which a model was tuned; task sentences that occur in it are counted. Exported models record "
            "their tuning data.",
        ),
    ] = None,
    folds: Annotated[
        int,
        typer.Option(
            min=2, help="Number of cross-validation folds for tasks without a given split."
        ),
    ] = 10,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Seed for assigning rows to folds.")
    ] = 0,
    text_column: Annotated[str, typer.Option(help="Column with the labeled sentences.")] = "text",
    label_column: Annotated[str, typer.Option(help="Column with the labels.")] = "label",
    score_column: Annotated[str, typer.Option(help="Gold-score column of pairs.")] = "score",
    pair_columns: Annotated[
        str, typer.Option(metavar="FIRST,SECOND", help="Sentence columns of pairs.")
    ] = "sentence1,sentence2",
    prompt: PromptOfAll = None,
    prompt_query: Annotated[
        str | None,
        typer.Option(help="Text added before the first sentence of a pair, instead of --prompt."),
    ] = None,
    prompt_document: Annotated[
        str | None,
        typer.Option(help="Text added before every other sentence, instead of --prompt."),
    ] = None,
    precision: PrecisionOfAll = "fp32",
    format: Annotated[str, typer.Option(help="Output format: table, json or csv.")] = "table",
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_level: LogLevel = None,
) -> None:
    """Compare frozen encoders on other tasks, without tuning them.

    For labeled sentences, the score is the accuracy of a logistic regression on the embeddings. For scored pairs, it is
    the Spearman correlation between cosines and gold scores. Both are shown x100.
    """
    from raysweep.terminal import working

    verbosity = check_verbosity(quiet, verbose, log_level)
    tuning_sources = tuned_on or []
    for model in models:
        check_model("MODEL", model)
    for flag, values in (("--tasks", tasks), ("--tuned-on", tuning_sources)):
        for value in values:
            check_not_empty(flag, value)
    check_one_of("--format", format, (*FORMATS, "csv"))
    checked_precision = check_one_of("--precision", precision, PRECISIONS)
    prompts = check_prompts(prompt, prompt_query, prompt_document)
    first, second = parse_names("--pair-columns", pair_columns, "FIRST,SECOND")
    from raysweep.data.scored_pairs import PairColumns
    from raysweep.evaluation.tasks import figures
    from raysweep.evaluation.tasks.compare import Settings, compare
    from raysweep.evaluation.tasks.tasks import Columns

    columns = Columns(text_column, label_column, PairColumns(score_column, first, second))
    with working(verbosity) as (display, _):
        settings = Settings(columns, folds, seed, prompts, checked_precision)
        comparison = compare(models, tasks, tuning_sources, settings, display)
    if format == "json":
        print_json(figures.as_json(comparison))
    elif format == "csv":
        typer.echo(figures.as_csv(comparison), nl=False)
    else:
        typer.echo(figures.title(comparison))
        print_table(figures.table(comparison))
        for note in figures.notes(comparison):
            typer.echo(f"note: {note}")


@app.command(cls=SeveralValues, rich_help_panel=panels.DATA)
def measure(  # noqa: PLR0913 (the options of a command)
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="Encoder: a folder, a URI, a name on the hub, or demo."
        ),
    ],
    data: Annotated[
        list[str],
        typer.Option(
            metavar="SOURCE...",
            help="One or more sources of retrieval data, labeled pairs, scored pairs or labeled sentences; hub "
            "datasets default to their test split.",
        ),
    ],
    base: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Encoder to compare with, such as the one before tuning."
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="retrieval, pairs, scored_pairs or labeled; inferred from the columns if not given."
        ),
    ] = None,
    retrieval_columns: Annotated[
        str, typer.Option(metavar="QUERY,POSITIVES,NEGATIVES", help="Columns of retrieval data.")
    ] = "query,positives,negatives",
    pair_columns: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST,SECOND",
            help="Sentence columns of pairs; sentence1,sentence2 or text1,text2 if not given.",
        ),
    ] = None,
    label_column: Annotated[
        str, typer.Option(help="Label column of pairs or sentences.")
    ] = "label",
    positive_label: Annotated[
        str | None,
        typer.Option(help="Label of positive pairs; 1, true or entailment if not given."),
    ] = None,
    score_column: Annotated[str, typer.Option(help="Score column of pairs.")] = "score",
    thresholds: PairThresholds = "4,2",
    group_columns: GroupColumns = None,
    seed: RelationSeed = 0,
    prompt: PromptOfAll = None,
    query_prompt: Annotated[
        str | None,
        typer.Option(
            help="Text added before queries and first sentences of pairs; same as --prompt if not given."
        ),
    ] = None,
    precision: PrecisionOfAll = "fp32",
    format: Annotated[str, typer.Option(help="Output format: table or json.")] = "table",
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_level: LogLevel = None,
) -> None:
    """Measure an encoder on retrieval data and pair files: PND, MRR, MAP, P@1, nDCG@10 and mAP@10, x100.

    PND is the share of (positive, negative) pairs in which the positive is not closer than the negative; lower is
    better. With --base, each measure is compared with that of another encoder.
    """
    from raysweep.config.sweep import EncoderConfig
    from raysweep.data.relation_sources import RelationColumns, RelationSettings
    from raysweep.data.relations import KINDS
    from raysweep.terminal import working

    verbosity = check_verbosity(quiet, verbose, log_level)
    check_model("MODEL", model)
    if base is not None:
        check_model("--base", base)
    for source in data:
        check_not_empty("--data", source)
    check_one_of("--format", format, FORMATS)
    checked_precision = check_one_of("--precision", precision, PRECISIONS)
    query, positives, negatives = parse_names(
        "--retrieval-columns", retrieval_columns, "QUERY,POSITIVES,NEGATIVES"
    )
    pair = None
    if pair_columns is not None:
        first, second = parse_names("--pair-columns", pair_columns, "FIRST,SECOND")
        pair = (first, second)
    groups = () if group_columns is None else parse_names("--group-columns", group_columns)
    settings = RelationSettings(
        kind=None if kind is None else check_one_of("--kind", kind, KINDS),
        columns=RelationColumns(
            query, positives, negatives, pair, label_column, score_column, groups
        ),
        positive_label=positive_label,
        thresholds=_parse_thresholds(thresholds),
        seed=seed,
    )
    from raysweep.evaluation import measure_tables, measures

    def with_prompts(name: str) -> measures.MeasuredEncoder:
        config = EncoderConfig(name=name, prompt=prompt, precision=checked_precision)
        return measures.MeasuredEncoder(config, query_prompt)

    encoder = with_prompts(model)
    base_encoder = None if base is None else with_prompts(base)
    with working(verbosity) as (display, _):
        results = measures.measure(encoder, base_encoder, data, settings, display)
    rows_by_data = [measure_tables.rows_of(result, seed) for result in results]
    if format == "json":
        print_json(
            [measure_tables.as_json(*values) for values in zip(results, rows_by_data, strict=True)]
        )
        return
    for result, rows in zip(results, rows_by_data, strict=True):
        typer.echo(measure_tables.title(result))
        print_table(measure_tables.table(rows))


@app.command(name="measure-run", cls=SeveralValues, rich_help_panel=panels.LOOK)
def measure_run(  # noqa: PLR0913 (the options of a command)
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run folder.")],
    target: Annotated[
        str,
        typer.Option(
            metavar="SOURCE",
            help="Source that should improve, such as retrieval data or labeled sentences.",
        ),
    ],
    watch: Annotated[
        list[str],
        typer.Option(metavar="SOURCE...", help="One or more sources that should not get worse."),
    ],
    geometry: Annotated[
        str, typer.Option(help="cosine or distance, for the table and the figure.")
    ] = "cosine",
    thresholds: PairThresholds = "4,2",
    group_columns: GroupColumns = None,
    seed: RelationSeed = 0,
    format: Annotated[str, typer.Option(help="Output format: table or json.")] = "table",
    quiet: Quiet = False,
    verbose: Verbose = False,
    log_level: LogLevel = None,
) -> None:
    """Measure a run's trials on other data, and find the learning rates at which nothing gets worse.

    The last rung of each trial with stored weights is measured, and its PND is compared with the untuned encoder's.
    RUN/report/watch.json contains all measures, and RUN/report/watch.png the figure.
    """
    from raysweep.data.relation_sources import RelationColumns, RelationSettings
    from raysweep.metrics.closeness import GEOMETRIES
    from raysweep.storage.folder import as_folder
    from raysweep.terminal import working

    verbosity = check_verbosity(quiet, verbose, log_level)
    for flag, values in (("RUN", [run]), ("--target", [target]), ("--watch", watch)):
        for value in values:
            check_not_empty(flag, value)
    checked_geometry = check_one_of("--geometry", geometry, GEOMETRIES)
    check_one_of("--format", format, FORMATS)
    groups = () if group_columns is None else parse_names("--group-columns", group_columns)
    settings = RelationSettings(
        columns=RelationColumns(groups=groups), thresholds=_parse_thresholds(thresholds), seed=seed
    )
    from raysweep.export import watched_run
    from raysweep.report import watched_trials

    folder = as_folder(run)
    with working(verbosity) as (display, _):
        trials = watched_run.watch_run(folder, target, watch, settings, checked_geometry, display)
    if format == "json":
        print_json(watched_trials.as_json(trials))
        return
    print_table(watched_trials.table(trials, checked_geometry))
    typer.echo(str(watched_trials.adiabatic_range(trials, checked_geometry)))
    typer.echo(
        f"{folder.location}/{watched_run.JSON_FILE}, {folder.location}/{watched_run.FIGURE_FILE}"
    )


def _parse_thresholds(text: str) -> "Thresholds":
    from raysweep.data.relation_sources import Thresholds

    with contextlib.suppress(ValueError):
        positive, negative = map(float, text.split(","))
        if positive > negative:
            return Thresholds(positive, negative)
    raise InputError(
        f"--thresholds is {text!r}; allowed: POSITIVE,NEGATIVE, where POSITIVE is the larger number"
    )
