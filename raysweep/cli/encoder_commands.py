"""Commands that score encoders without training: evaluate and transfer."""

from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from raysweep.cli.options import (
    FORMATS,
    SeveralValues,
    check_all_of,
    check_local,
    check_not_empty,
    check_one_of,
    parse_path,
    parse_positive_integers,
)
from raysweep.cli.output import print_json
from raysweep.errors import InputError
from raysweep.output import TextTable, print_table

app = typer.Typer()


@app.command()
def evaluate(  # noqa: PLR0913 (the options of a command)
    model: Annotated[str, typer.Option(help="Encoder to score: a folder, a name on the hub, or demo.")],
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
            help="Text added before every sentence, such as 'query: ', or '' for none; the model's default if not given."
        ),
    ] = None,
    precision: Annotated[str, typer.Option(help="Precision of the scored encoder: fp32, or bf16 (autocast).")] = "fp32",
    format: Annotated[str, typer.Option(help="Output format: table or json.")] = "table",
    to: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path,
            metavar="FOLDER",
            help="Also write the scores by k to this folder, as Markdown, LaTeX, CSV and a figure.",
        ),
    ] = None,
) -> None:
    """Score an encoder by retrieval, without training: polarity P and similarity S, x100."""
    from raysweep.config.sweep import EncoderConfig
    from raysweep.metrics.retrieval import RankWeights
    from raysweep.terminal import working

    for flag, text in (("--model", model), ("--train", train), ("--test", test)):
        check_not_empty(flag, text)
    ks = parse_positive_integers("--k", k)
    all_weights: tuple[RankWeights, ...] = get_args(RankWeights)
    weights = check_all_of("--rank-weights", rank_weights, all_weights)
    check_one_of("--format", format, FORMATS)
    checked_precision: Literal["fp32", "bf16"] = check_one_of("--precision", precision, ("fp32", "bf16"))
    if to is not None:
        from raysweep.paper.write import check_writable

        check_writable(check_local("--to", to))
    from raysweep.evaluation import score_files

    encoder = EncoderConfig(name=model, prompt=prompt, precision=checked_precision)
    reference_encoder = EncoderConfig(name=reference, prompt=prompt) if reference else None
    files = score_files.LabeledFiles(train, test, text_column, label_column)
    settings = score_files.RetrievalSettings(ks, weights, num_pool, pool_seed)
    with working() as (display, _):
        scores = score_files.score_files(encoder, reference_encoder, files, settings, display)
    if format == "json":
        print_json(scores)
    else:
        columns = ("k", "rank weights", "P", "P std", "S", "S std", "accuracy")
        rows = []
        for row in scores:
            cells = [f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()]
            rows.append(tuple(cells))
        print_table(TextTable(columns, tuple(rows), text=frozenset({"rank weights"})))
    if to is not None:
        import pandas as pd

        from raysweep.paper.model_scores import last_part
        from raysweep.paper.write import write_by_k

        note = f"Queries are the rows of {last_part(test)}, the pool is sampled from {last_part(train)}."
        names = {"polarity_mean": "polarity", "similarity_mean": "similarity"}
        frame = pd.DataFrame(scores).rename(columns=names)
        write_by_k(frame.assign(model=last_part(model)), note, to)
        typer.echo(f"layouts: {to}", err=format == "json")


@app.command(cls=SeveralValues)
def transfer(  # noqa: PLR0913 (the options of a command)
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL", help="Encoders to compare: folders, names on the hub, or demo.")
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
        typer.Option(help="Text added before every sentence, or '' for none; each model's default if not given."),
    ] = None,
    precision: Annotated[str, typer.Option(help="Precision of the encoders: fp32, or bf16 (autocast).")] = "fp32",
    format: Annotated[str, typer.Option(help="Output format: table, json or csv.")] = "table",
) -> None:
    """Compare frozen encoders on other tasks, without tuning them.

    For labeled sentences, the score is the accuracy of a logistic regression on the embeddings; for scored pairs, it is
    the Spearman correlation of cosines with gold scores. Both are shown x100.
    """
    from raysweep.terminal import working

    tuning_sources = tuned_on or []
    for flag, values in (("MODEL", models), ("--tasks", tasks), ("--tuned-on", tuning_sources)):
        for value in values:
            check_not_empty(flag, value)
    check_one_of("--format", format, (*FORMATS, "csv"))
    checked_precision: Literal["fp32", "bf16"] = check_one_of("--precision", precision, ("fp32", "bf16"))
    first, _, second = pair_columns.partition(",")
    if not (first and second) or "," in second:
        raise InputError(f"--pair-columns is {pair_columns!r}; allowed: FIRST,SECOND")
    from raysweep.evaluation.tasks import figures
    from raysweep.evaluation.tasks.compare import Settings, compare
    from raysweep.evaluation.tasks.scored_pairs import PairColumns
    from raysweep.evaluation.tasks.tasks import Columns

    columns = Columns(text_column, label_column, PairColumns(score_column, first, second))
    with working() as (display, _):
        settings = Settings(columns, folds, seed, prompt, checked_precision)
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
