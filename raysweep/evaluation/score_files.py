"""Scoring an encoder on two files of labelled sentences, with no training and no Ray: the ``evaluate`` command."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from raysweep.config.sweep import EncoderConfig
from raysweep.data import sources
from raysweep.encoders import encoder
from raysweep.encoders import tokens as encoder_tokens
from raysweep.encoders.locate import locate
from raysweep.errors import InputError
from raysweep.metrics import retrieval
from raysweep.terminal import Display


def score_files(
    model: EncoderConfig,
    reference: EncoderConfig | None,
    train: str,
    test: str,
    ks: Sequence[int],
    weights: Iterable[retrieval.RankWeights],
    display: Display,
    *,
    text_column: str = "text",
    label_column: str = "label",
    num_pool: int | None = None,
    pool_seed: int = 42,
) -> list[dict[str, Any]]:
    """P and S of retrieval by ``model``: queries are the rows of ``test``, the pool is a sample of ``train``.

    Retrieval goes by cosine or, where the model's similarity function is ``dot``, by inner product.

    One dictionary for each k and kind of rank weights: means and standard deviations over queries, x100. Rows are taken as
    they are, duplicates and conflicting labels too, so that published values come out. Raises InputError.
    """
    for path, split in ((train, "train"), (test, "test")):
        sources.check(path, text_column=text_column, label_column=label_column, split=split)
    located = locate(model)
    if reference is not None:
        locate(reference)
    texts, labels = _read(train, text_column, label_column, "train")
    query_texts, query_labels = _read(test, text_column, label_column, "test")
    if len(set(labels)) == 1:
        raise InputError(f"{train}: every row has the label {labels[0]!r}; polarity needs at least two classes")
    _warn_of_conflicts(train, texts, labels, display)
    _check_labels(test, query_labels, sorted(set(labels)), display)
    if num_pool is not None and num_pool > len(texts):
        display.warn(f"the pool is all {len(texts)} rows of {train}, fewer than the {num_pool} asked for")
    drawn = retrieval.sample_pool(len(texts), len(query_texts), size=num_pool, seed=pool_seed)
    for k in ks:
        retrieval.check_k(k, len(drawn))
    numbers = {label: number for number, label in enumerate(dict.fromkeys([*labels, *query_labels]))}
    pool_labels = np.array([numbers[labels[row]] for row in drawn])
    wanted_labels = np.array([numbers[label] for label in query_labels])
    all_texts = query_texts + [texts[row] for row in drawn]
    tuned = _embed(model, located.folder.name, all_texts, display)
    if reference in (None, model):
        frozen = tuned / np.linalg.norm(tuned, axis=1, keepdims=True)
    else:
        frozen = _embed(reference or model, "reference", all_texts, display, unit=True)
    queries, pool = np.split(tuned, [len(query_texts)])
    reference_queries, reference_pool = np.split(frozen, [len(query_texts)])
    found = retrieval.retrieve(queries, pool, max(ks))
    results = []
    for kind in weights:
        for k in ks:
            scores = retrieval.score(
                found[:, :k],
                wanted_labels,
                pool_labels,
                reference_queries,
                reference_pool,
                retrieval.rank_weights(kind, k),
            )
            results.append(
                {
                    "k": k,
                    "rank_weights": kind,
                    "polarity_mean": 100 * float(scores.polarity.mean()),
                    "polarity_std": 100 * float(scores.polarity.std()),
                    "similarity_mean": 100 * float(scores.similarity.mean()),
                    "similarity_std": 100 * float(scores.similarity.std()),
                }
            )
    return results


def _read(source: str, text_column: str, label_column: str, split: str) -> tuple[list[str], list[str]]:
    texts: list[str] = []
    labels: list[str] = []
    for batch in sources.read(source, text_column=text_column, label_column=label_column, split=split):
        texts += batch.texts
        labels += batch.labels
    return texts, labels


def _check_labels(test: str, query_labels: list[str], names: list[str], display: Display) -> None:
    """A query whose label train lacks has a polarity of 0: said if there are some, refused if there are no others."""
    unknown = [(row, label) for row, label in enumerate(query_labels, 1) if label not in names]
    if unknown:
        known = ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")
        text = f"row {unknown[0][0]} has the label {unknown[0][1]!r}, which train lacks; train has {known}"
        if len(unknown) == len(query_labels):
            raise InputError(f"{test}: no row has a label of train: {text}")
        display.warn(f"{test}: {len(unknown)} of {len(query_labels)} rows have labels that train lacks: {text}")


def _warn_of_conflicts(source: str, texts: list[str], labels: list[str], display: Display) -> None:
    first: dict[str, str] = {}
    conflicting = {text for text, label in zip(texts, labels, strict=True) if first.setdefault(text, label) != label}
    if conflicting:
        display.warn(
            f"{source}: {len(conflicting)} texts carry different labels; kept, as evaluate scores rows as they are"
        )


def _embed(
    config: EncoderConfig, name: str, texts: list[str], display: Display, *, unit: bool = False
) -> npt.NDArray[np.float32]:
    """Embeddings whose inner products the model ranks by: unit ones, unless its similarity function is ``dot``."""
    with display.stage(f"evaluate: {name}") as advance:
        model = encoder.load(config, device=encoder.best_device())
        tokens = encoder_tokens.tokenise(model, texts, config.prompt)
        done = 0

        def progress(count: int) -> None:
            nonlocal done
            done += count
            advance(done, len(texts), "sentences")

        return encoder.embed(
            model,
            tokens,
            np.arange(len(texts)),
            progress,
            arithmetic=config.precision,
            unit=unit or model.similarity_fn_name != "dot",
        )
