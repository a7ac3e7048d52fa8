"""Export of a front point to disk, as a sentence-transformers model."""

import contextlib
import glob
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from raysweep.config import packages
from raysweep.config.sides import Side, Sides
from raysweep.config.sweep import DataConfig, EncoderConfig
from raysweep.data import demo
from raysweep.data.prepared import Prepared
from raysweep.encoders import adapter, bf16_weights, encoder
from raysweep.encoders.locate import locate
from raysweep.encoders.provenance import Provenance
from raysweep.errors import InputError
from raysweep.evaluation.operating_points import LABELED, Head
from raysweep.export import joined_encoder, model_card, modules
from raysweep.export.model_card import CARD, CardFacts
from raysweep.export.probe_head import PROBE, fit_again
from raysweep.export.run_encoders import BaseModel, RunEncoders
from raysweep.output import counted
from raysweep.report import choice
from raysweep.report.front import Member
from raysweep.report.summary import Summary, summary_of
from raysweep.report.tables import show_pair
from raysweep.results.commands import format_command
from raysweep.results.events import TrialStarted
from raysweep.results.ledger import load_events, point_folder
from raysweep.results.settings_file import NAME as SETTINGS
from raysweep.results.settings_file import read_settings
from raysweep.results.types import QUERY_KINDS, Point, PointKey, key_name
from raysweep.storage.folder import Folder, as_folder
from raysweep.storage.location import is_uri
from raysweep.training.sub_embeddings import SubEmbeddings
from raysweep.training.trainable import Trainable, TrainedWeights
from raysweep.training.weights import read_point

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


MAX_NAMED = 12  # maximum number of points listed in the message for an unknown point

Embeddings = npt.NDArray[np.float32]  # (sentences, width)

NUM_SENTENCES = 32
NUM_TIMED = 10  # number of sentences whose encoding is timed
LONG_TEXT = 4000  # characters, about 1,000 tokens
MAX_DIFFERENCE = 1e-5  # maximum difference between coordinates of unit vectors
MAX_DIFFERENCE_WITH_CLASSES = 1e-4  # with class probabilities; logits amplify rounding errors


def export(  # noqa: PLR0913 (the options of the command)
    place: Path | Folder,
    point: str,
    to: Path,
    hub_name: str | None = None,
    *,
    as_adapter: bool = False,
    conditions: Sequence[str] = (),
    data_set: str | None = None,
) -> str:
    """Export the model of a point on a run's front to the new folder ``to``.

    ``SentenceTransformer(to)`` loads the model without raysweep. The saved model is verified before the folder gets its
    final name. If an error occurs, no files are left behind.

    Args:
        place: The run's folder.
        point: ``knee``, ``best`` or the name of a point.
        to: The folder to create.
        hub_name: The model's name on the Hub, for the loading code in the model card.
        as_adapter: Whether to export only the adapter instead of merging it into the weights.
        conditions: Conditions that ``knee`` and ``best`` must meet; see :func:`raysweep.report.choice.choose`.
        data_set: The data set whose mask the model uses; required for a run over a sequence.

    Returns:
        A description of the exported model: dev scores, size, encoding time and missed guards.

    Raises:
        InputError: If the point does not exist or cannot be exported, ``to`` exists, the saved model returns different
            vectors, or the run's settings have changed since it started.
    """
    if to.exists():
        raise InputError(f"{to}: already exists; allowed: a new folder")
    run = as_folder(place)
    summary = summary_of(run)
    if point.partition("=")[0] == PROBE:
        if as_adapter or conditions or data_set is not None:
            raise InputError(
                f"--point is {point}; allowed with --adapter, --where, --prefer or --data-set: any point except a probe"
            )
        return _export_probe(run, summary, point, to, hub_name)
    member = _choose(run, summary, point, conditions)
    chosen = member.dev
    data_set_number = modules.find_data_set(summary.results.info.tasks, data_set)
    settings = read_settings(run, summary.results)
    encoders = RunEncoders.of(run)
    model, embed = _build(
        run, chosen, encoders, as_adapter=as_adapter, data_set_number=data_set_number
    )
    try:
        data = DataConfig.model_validate(settings["data"])
        pool_seed = int(settings["evaluation"]["pool_seed"])
        unmeasured = [name for name in settings["guards"] if name not in member.guards]
    except (ValidationError, KeyError, TypeError, ValueError):
        raise InputError(
            f"{run.location}/{SETTINGS}: missing or damaged; restore the original file"
        ) from None
    replicates = (
        event.run or 0
        for event in load_events(run)
        if isinstance(event, TrialStarted) and event.trial == chosen.trial
    )
    replicate = next(replicates, 0)
    facts = CardFacts(
        summary,
        member,
        encoders,
        data,
        pool_seed,
        replicate,
        hub_name,
        unmeasured,
        is_adapter=as_adapter,
        data_set=data_set,
    )
    sentences = _sample_sentences(run)
    embeddings = embed.map(lambda embed_side: embed_side(sentences))
    expected = _Expected(sentences, embeddings, _similarity(chosen))
    provenance = _provenance(run, chosen.name, encoders.model.name, data)
    milliseconds = _write(model, expected, provenance, partial(model_card.write, model, facts), to)
    of_data_set = "" if data_set is None else f" for {data_set}"
    written = f"{chosen.name}{of_data_set} ({_described(summary, chosen, to, milliseconds)}) written to {to}"
    if member not in (*summary.members, *summary.labeled):
        written += "; it is not on the front"
    if chosen.kind == LABELED:
        written += f". The model embeds queries; {CARD} shows how to embed the pool, whose labels are known"
    return ". ".join([written, *model_card.guard_warnings(facts)])


def _export_probe(run: Folder, summary: Summary, name: str, to: Path, hub_name: str | None) -> str:
    """Refit the probe's head on the run's artifacts and export one of the probe's points.

    Raises:
        InputError: If the point does not exist, artifacts are missing, or the refitted head has different scores.
    """
    results = summary.results
    probes: dict[str, Point] = {}
    if not results.info.tasks:  # a sequence's probes cannot be selected by name
        for point in results.points:
            if point.kind == PROBE and point.split == "dev":
                probes[key_name(point.key)] = point
    if name not in probes:
        raise InputError(f"--point is {name}; allowed probes: {', '.join(probes) or 'none'}")
    chosen = probes[name]
    settings = read_settings(run, results)
    head = fit_again(run, settings, chosen)
    encoders = RunEncoders.of(run)
    first, second = (
        _load(encoders.reference, encoders.reference_identity, "reference") for _ in range(2)
    )
    key: PointKey = ("class_concat", chosen.value)
    model = joined_encoder.build(key, first, second, head)
    _set_prompts(model, encoders.reference_prompts)
    sentences = _sample_sentences(run)
    embed = partial(_embed_joined, key, (first, second), head, sentences)
    embeddings = encoders.reference_prompts.map(embed)
    expected = _Expected(sentences, embeddings, "dot")
    data = DataConfig.model_validate(settings["data"])
    provenance = _provenance(run, name, encoders.reference.name, data)
    base = BaseModel.of(encoders.reference)
    write_card = partial(model_card.write_probe, model, summary, chosen, base, hub_name)
    milliseconds = _write(model, expected, provenance, write_card, to)
    return f"{name} ({_described(summary, chosen, to, milliseconds)}) written to {to}"


def _provenance(run: Folder, point: str, base: str, data: DataConfig) -> Provenance:
    sources = (data.train,) if isinstance(data.train, str) else tuple(data.train)
    return Provenance(run.location, point, base, sources, data.subset, data.text_column)


def _described(summary: Summary, point: Point, folder: Path, milliseconds: float) -> str:
    """Return an exported point's scores, size and encoding time as text."""
    scores = show_pair(point, summary.goals, digits=2)
    encoders_used = counted(point.num_encoders, "encoder")
    num_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    size = f"width {point.width}, {encoders_used}, {num_bytes / 1e6:,.0f} MB, {milliseconds:.1f} ms per query on the CPU"
    return f"dev {scores}, {size}"


def model_of(run: Folder, chosen: Point) -> "SentenceTransformer":
    """Return the model that would be exported for a point, or raise InputError like :func:`export`."""
    return _build(run, chosen, RunEncoders.of(run)).model


class _PointModel(NamedTuple):
    """The model of a point, and the functions that embed queries and documents as in the point's evaluation."""

    model: "SentenceTransformer"
    embed: Sides[Callable[[Sequence[str]], Embeddings]]


def _build(
    run: Folder,
    chosen: Point,
    encoders: RunEncoders,
    *,
    as_adapter: bool = False,
    data_set_number: int | None = None,
) -> _PointModel:
    weights, head = _read_weights(run, chosen)
    if as_adapter:
        _check_adapter(weights, chosen)
    if data_set_number is not None:
        return _build_sub_embedding(chosen, weights, encoders, data_set_number)
    if weights.is_separate:
        return _build_pair(chosen, weights, encoders)
    trainable = _load_tuned(chosen, weights, encoders)
    if as_adapter:
        base = BaseModel.of(encoders.model)
        is_on_hub = encoders.model.name != "demo"  # the demo model is loaded from a package
        adapter.keep(trainable.model, _share(chosen), base.hub_name if is_on_hub else None)
    else:
        trainable.finish(_share(chosen))
    tuned = trainable.model
    if chosen.kind in QUERY_KINDS:
        return _build_query_encoder(chosen, tuned, encoders)
    model, embed = _build_encoder(chosen, tuned, head, encoders)
    model.similarity_fn_name = _similarity(chosen)  # override the base model's setting
    _set_prompts(model, encoders.prompts)
    return _PointModel(model, encoders.prompts.map(lambda prompt: partial(embed, prompt=prompt)))


class _Encoder(NamedTuple):
    """A model without prompts, and a function that embeds sentences with a prompt."""

    model: "SentenceTransformer"
    embed: Callable[..., Embeddings]


def _build_encoder(
    chosen: Point, tuned: "SentenceTransformer", head: Head | None, encoders: RunEncoders
) -> _Encoder:
    """Build the model of a point from a tuned encoder."""
    if chosen.kind in joined_encoder.KINDS:
        reference = _load_reference(encoders, chosen)
        model = joined_encoder.build(chosen.key, tuned, reference, head)
        model.prompts = tuned.prompts
        return _Encoder(model, partial(_embed_joined, chosen.key, (tuned, reference), head))
    if chosen.kind == "truncate":
        tuned.truncate_dim = chosen.width
        return _Encoder(tuned, partial(_embed_truncated, tuned, chosen.width))
    return _Encoder(tuned, partial(encoder.embed_texts, tuned, unit=False))


def _build_sub_embedding(
    chosen: Point, weights: TrainedWeights, encoders: RunEncoders, data_set_number: int
) -> _PointModel:
    """Build the model of a point for one data set in a sequence."""
    try:
        adapter = SubEmbeddings.from_weights(weights)
    except ValueError as error:
        raise InputError(f"{chosen.name}: its weights are damaged: {error}") from None
    base = _load(encoders.model, encoders.model_identity, "tuned")
    bf16_weights.widen(base)
    model = modules.build_sub_embedding(base, adapter.layers[data_set_number])
    embed: Callable[..., Embeddings] = partial(
        modules.embed_sub_embedding, base, adapter, data_set_number
    )
    if chosen.value is not None:  # concat
        reference = _load_reference(encoders, chosen)
        prompts = model.prompts
        model = joined_encoder.build(chosen.key, model, reference, None)
        model.prompts = prompts
        embed = partial(_embed_sub_joined, chosen.value, embed, reference)
    _set_prompts(model, encoders.prompts)
    return _PointModel(model, encoders.prompts.map(lambda prompt: partial(embed, prompt=prompt)))


def _build_pair(chosen: Point, weights: TrainedWeights, encoders: RunEncoders) -> _PointModel:
    """Build the model of a point whose trial tuned separate query and document encoders."""
    sides = Sides[Side]("query", "document")

    def build_side(side: Side) -> _Encoder:
        trainable = _load_tuned(chosen, weights.on(side), encoders)
        trainable.finish(_share(chosen))
        return _build_encoder(chosen, trainable.model, None, encoders)

    built = sides.map(build_side)
    model = modules.build_pair(built.map(lambda of_side: of_side.model), _similarity(chosen))
    model.prompts = built.document.model.prompts
    model.truncate_dim = built.document.model.truncate_dim
    _set_prompts(model, encoders.prompts)
    embeds = built.map(lambda of_side: of_side.embed).zip(encoders.prompts)
    return _PointModel(model, embeds.map(lambda source: partial(source[0], prompt=source[1])))


def _build_query_encoder(
    chosen: Point, tuned: "SentenceTransformer", encoders: RunEncoders
) -> _PointModel:
    """Build the model of a point whose trial tuned only the query encoder."""
    reference = _load(encoders.reference, encoders.reference_identity, "reference")
    prompts = Sides(encoders.prompts.query, encoders.reference_prompts.document)
    embed_query = partial(encoder.embed_texts, tuned, prompt=prompts.query)
    if chosen.value is not None:
        if encoders.reference_prompts.query != prompts.query:
            raise InputError(
                f"{chosen.name} cannot be exported: the reference encoder has a different prompt for queries"
            )
        embed_query = partial(_embed_sum, chosen.value, (tuned, reference), prompt=prompts.query)
    model = modules.build_query_encoder(chosen.key, tuned, reference)
    model.prompts = tuned.prompts
    _set_prompts(model, prompts)
    embed_document = partial(encoder.embed_texts, reference, prompt=prompts.document)
    return _PointModel(model, Sides(embed_query, embed_document))


def _check_adapter(weights: TrainedWeights, chosen: Point) -> None:
    """Raise InputError unless the model of a point is a single encoder with an adapter."""
    if weights.is_separate:
        raise InputError(
            f"--adapter: trial {chosen.trial} tuned two encoders (tower is separate); allowed: points with one encoder"
        )
    if chosen.kind in (*joined_encoder.KINDS, *QUERY_KINDS):
        raise InputError(
            f"--adapter: {chosen.name} joins two encoders; allowed: plain, interpolated and truncated points"
        )
    if weights.lora is None:
        raise InputError(
            f"--adapter: trial {chosen.trial} has no adapter (adapter is none); allowed: points of trials with lora"
        )


def _choose(run: Folder, summary: Summary, point: str, conditions: Sequence[str]) -> Member:
    """Return the member that ``point`` names, on the ordinary front or on the front of labeled points."""
    members = summary.members
    if not members:
        raise InputError(f"{run.location}: no trial finished a rung, so there is nothing to export")
    if conditions:
        return _choose_by_conditions(run, summary, point, conditions)
    # also accept the notation in the report's table
    wanted = point.removesuffix(":plain").replace("(", "=").replace(")", "")
    names = []
    for member in members:
        is_marked = (wanted == "knee" and member.is_knee) or (wanted == "best" and member.is_best)
        if is_marked or wanted == member.dev.name:
            return member
        names.append(member.dev.name)
    for member in summary.labeled:
        if wanted == member.dev.name:
            return member
        if run.exists(_folder_of_weights(member.dev)):
            names.append(member.dev.name)
    allowed = ", ".join(["knee", "best", *names[:MAX_NAMED]])
    if len(names) > MAX_NAMED:
        allowed += (
            f" and {len(names) - MAX_NAMED} more, listed by {format_command('show', run.location)}"
        )
    raise InputError(f"--point {wanted}: not on the front; allowed: {allowed}")


def _choose_by_conditions(
    run: Folder, summary: Summary, point: str, conditions: Sequence[str]
) -> Member:
    """Return the knee or the best point among the front members that meet the conditions.

    If no front member meets them, choose among all points whose weights are stored.
    """
    if point not in ("knee", "best"):
        raise InputError(f"--point is {point}; allowed with --where or --prefer: knee, best")
    by = "objective" if point == "best" else None
    selection = choice.Selection(conditions, by, knee=point == "knee")
    chosen = choice.choose(summary, selection)
    if not chosen.candidates:
        everything = replace(selection, everything=True)
        chosen = choice.choose(
            summary, everything, lambda point: run.exists(_folder_of_weights(point))
        )
    if not chosen.candidates:
        raise InputError(chosen.why_none)
    [candidate] = chosen.candidates
    return candidate.member or Member(
        candidate.dev, candidate.test, False, False, candidate.is_feasible
    )


def _read_weights(run: Folder, chosen: Point) -> tuple[TrainedWeights, Head | None]:
    """Return the trained weights and the head of the point's rung."""
    name = _folder_of_weights(chosen)
    if not run.exists(name):
        if chosen.kind == LABELED:
            raise InputError(
                f"{run.location}: the weights of {chosen.name} were not kept; allowed: labeled points of rungs that also "
                "have a point on the ordinary front"
            )
        raise InputError(
            f"{run.location}: the weights of {chosen.name} are missing: {name} was removed, or storage.max_gib was reached"
        )
    folder = run.fetch(name)
    try:
        return read_point(folder)
    except (OSError, ValueError) as error:
        raise InputError(f"{run.location}/{name}: damaged: {error}") from None


def _folder_of_weights(point: Point) -> str:
    assert point.trial is not None and point.step is not None
    return point_folder(point.trial, point.step)


def _load_tuned(chosen: Point, weights: TrainedWeights, encoders: RunEncoders) -> Trainable:
    """Return the base model with the trained weights of the point's rung."""
    if weights.lora is not None:
        packages.check(packages.needs_of_adapters(chosen.name, ["lora"]))
    trainable = Trainable(_load(encoders.model, encoders.model_identity, "tuned"))
    try:
        trainable.load(weights)
    except ValueError as error:
        raise InputError(f"{chosen.name}: its weights are damaged: {error}") from None
    return trainable


def _share(chosen: Point) -> float:
    """Return the interpolation weight of the trained weights, or 1 if the point is not interpolated."""
    if chosen.kind != "interpolate":
        return 1.0
    assert chosen.value is not None
    return chosen.value


def _load_reference(encoders: RunEncoders, chosen: Point) -> "SentenceTransformer":
    """Load the reference encoder of a point, or raise InputError if its inputs differ from the tuned encoder's."""
    model, reference = encoders.model, encoders.reference
    if (reference.prompt, reference.max_tokens) != (model.prompt, model.max_tokens):
        raise InputError(
            f"{chosen.name} cannot be exported: the reference encoder has a different prompt or max_tokens"
        )
    return _load(reference, encoders.reference_identity, "reference")


def _load(
    config: EncoderConfig, identity: str, role: Literal["tuned", "reference"]
) -> "SentenceTransformer":
    source = locate(config)
    if source.identity != identity:
        reason = "its frozen weights are needed" if role == "tuned" else "the point includes it"
        raise InputError(f"model {config.name!r} has changed since the run; {reason}")
    model = encoder.load(config, role=role, source=source)
    if role == "reference":
        bf16_weights.widen(model)  # as Trainable.finish does with the tuned model
    return model


def _similarity(chosen: Point) -> Literal["cosine", "dot"]:
    return "dot" if chosen.kind in joined_encoder.BY_PRODUCT else "cosine"


def _set_prompts(model: "SentenceTransformer", prompts: Sides[str]) -> None:
    """Set the prompts for queries and documents, and make ``encode`` use the document prompt.

    Other prompts are kept. Separate maximum lengths for queries and documents are removed.
    """
    model.prompts = {**model.prompts, "query": prompts.query, "document": prompts.document}
    default = "query" if prompts.is_shared else "document"
    model.default_prompt_name = default if prompts.document else None
    for module in model.modules():
        # the setters require this order
        for name in (
            "query_expansion",
            "query_length",
            "document_length",
        ):
            if hasattr(module, name):
                setattr(module, name, None)


def _sample_sentences(run: Folder) -> list[str]:
    """Return sentences from the run, or demo sentences if its artifacts are missing or in an object store.

    Texts with capitals, accents and more tokens than most models accept are appended.
    """
    sentences: list[str] = []
    # a run can be exported without its artifacts
    with contextlib.suppress(InputError, OSError):
        prepared = Prepared.read(run.fetch("prepared.json"))
        artifact = prepared.sentences_artifact
        if not is_uri(artifact.location) and artifact.exists:
            stored = prepared.sentences
            ids = np.linspace(0, len(stored) - 1, NUM_SENTENCES).astype(np.int64)
            sentences = stored.texts(ids)
    if not sentences:
        rows, _ = demo.generate(num_train=NUM_SENTENCES, num_test=0)
        sentences = [row.text for row in rows]
    long_text = " ".join(sentences)[:LONG_TEXT]
    return [*sentences, *encoder.PROBES, long_text]


def _embed_joined(
    key: PointKey,
    models: "tuple[SentenceTransformer, SentenceTransformer]",
    head: Head | None,
    sentences: Sequence[str],
    prompt: str,
) -> Embeddings:
    """Return the vectors (sentences, width) of a point that joins the tuned and the reference encoder.

    The formulas are in :mod:`raysweep.evaluation.operating_points`.
    """
    kind, value = key
    assert value is not None
    tuned, reference = (encoder.embed_texts(model, sentences, prompt) for model in models)
    if kind == "concat":
        return _concatenate(value, tuned, reference)
    assert head is not None
    return _join(value**0.5 * head.probabilities(tuned), reference)


def _embed_sub_joined(
    value: float,
    embed: Callable[..., Embeddings],
    reference: "SentenceTransformer",
    sentences: Sequence[str],
    prompt: str,
) -> Embeddings:
    """Return the ``concat(value)`` vectors (sentences, width) of a data set's sub-embeddings and reference embeddings."""
    return _concatenate(
        value, embed(sentences, prompt=prompt), encoder.embed_texts(reference, sentences, prompt)
    )


def _embed_sum(
    value: float,
    models: "tuple[SentenceTransformer, SentenceTransformer]",
    sentences: Sequence[str],
    prompt: str,
) -> Embeddings:
    """Return e_R + value * e_M for each sentence, scaled to unit length, (sentences, width)."""
    tuned, reference = (encoder.embed_texts(model, sentences, prompt) for model in models)
    sums = reference + np.float32(value) * tuned
    embeddings: Embeddings = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    return embeddings


def _embed_truncated(
    model: "SentenceTransformer", width: int | None, sentences: Sequence[str], prompt: str
) -> Embeddings:
    """Return the first ``width`` coordinates of the embeddings, (sentences, width)."""
    return encoder.embed_texts(model, sentences, prompt, unit=False)[:, :width]


def _concatenate(value: float, tuned: Embeddings, reference: Embeddings) -> Embeddings:
    """Return unit vectors whose inner products are (cos_R + value cos_M) / (1 + value)."""
    return _join(value**0.5 * tuned, reference) / np.float32((1 + value) ** 0.5)


def _join(first: Embeddings, second: Embeddings) -> Embeddings:
    joined: Embeddings = np.hstack([first, second], dtype=np.float32)
    return joined


@dataclass(frozen=True)
class _Expected:
    """The embeddings of sample sentences and the similarity function that an exported model must reproduce."""

    sentences: Sequence[str]
    embeddings: Sides[Embeddings]
    similarity: Literal["cosine", "dot"]  # dot for vectors with class probabilities

    def find_difference(self, embeddings: Embeddings, side: Side) -> str:
        """Describe how embeddings differ from the expected ones, or return "" if they match."""
        expected = self.embeddings.of(side)
        if embeddings.shape != expected.shape:
            return f"returns vectors of width {embeddings.shape[-1]}; the scored vectors have width {expected.shape[-1]}"
        allowed = MAX_DIFFERENCE_WITH_CLASSES if self.similarity == "dot" else MAX_DIFFERENCE
        difference = float(np.abs(embeddings - expected).max())
        longest = float(np.linalg.norm(expected, axis=1).max())
        relative = difference / max(1.0, longest)
        if relative <= allowed:  # false for NaN
            return ""
        return f"returns different vectors than the run's weights do (difference: {relative:.2g}, allowed: {allowed:g})"


def _verify(folder: Path, expected: _Expected, to: Path) -> float:
    """Load a saved model as users will, and raise InputError if its vectors differ from the expected ones.

    Returns:
        The minimum time to encode a query, in milliseconds.
    """
    from sentence_transformers import SentenceTransformer

    embeddings: dict[str, Embeddings] = {}  # keyed by method
    try:
        with encoder.without_progress_bars():
            model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
            for method in (model.encode, model.encode_query, model.encode_document):
                embeddings[method.__name__] = method(
                    list(expected.sentences), show_progress_bar=False
                )
    except Exception as error:  # loading may raise any exception
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"{to}: not written: the saved model cannot be loaded: {reason}") from None
    for name, vectors in embeddings.items():
        difference = expected.find_difference(
            vectors, "query" if name == "encode_query" else "document"
        )
        if difference:
            raise InputError(f"{to}: not written: {name} of the saved model {difference}")
    if model.similarity_fn_name != expected.similarity:
        raise InputError(
            f"{to}: not written: similarity_fn_name of the saved model is {model.similarity_fn_name}; allowed: "
            f"{expected.similarity}, which was used to score the point"
        )
    times = []
    for sentence in expected.sentences[:NUM_TIMED]:
        began = time.perf_counter()
        model.encode_query(sentence, show_progress_bar=False)
        times.append(time.perf_counter() - began)
    return min(times) * 1000


def _write(
    model: "SentenceTransformer",
    expected: _Expected,
    provenance: Provenance,
    write_card: Callable[[Path, str], None],
    to: Path,
) -> float:
    """Save the model and its card under a temporary name, verify the folder, and rename it.

    ``write_card`` is passed the folder and the model's name.

    Returns:
        The minimum time to encode a query, in milliseconds.
    """
    temporary = to.with_name(f".{to.name}.{os.getpid()}")
    _remove_leftovers(to)
    try:
        with _removed_on_failure(temporary):
            model.save(str(temporary), create_model_card=False)
            milliseconds = _verify(temporary, expected, to)
            provenance.write(temporary)
            write_card(temporary, to.name)
            # safetensors makes weight files readable only by their owner
            mode = (temporary / "modules.json").stat().st_mode
            for file in temporary.rglob("*.safetensors"):
                file.chmod(mode)
            temporary.rename(to)
            return milliseconds
    except OSError as error:
        raise InputError(f"{to}: cannot be written: {error.strerror or error}") from None


def _remove_leftovers(to: Path) -> None:
    """Remove the temporary folders of killed exports to ``to``."""
    for leftover in to.parent.glob(f".{glob.escape(to.name)}.*"):
        process = leftover.name.rpartition(".")[2]
        if process.isdecimal() and not _is_alive(int(process)):
            shutil.rmtree(leftover, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # the process belongs to another user
        return True
    return True


@contextlib.contextmanager
def _removed_on_failure(temporary: Path) -> Iterator[None]:
    """If the block fails, remove ``temporary`` and the parent folders created for it."""
    missing = [parent for parent in temporary.parents if not parent.exists()]
    try:
        yield
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        for parent in missing:
            with contextlib.suppress(OSError):  # was never created, or now contains other files
                parent.rmdir()
        raise
