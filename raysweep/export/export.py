"""Export of a point of the front to disk, as a sentence-transformers model."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import ValidationError

from raysweep.config.sweep import DataConfig, EncoderConfig
from raysweep.encoders import encoder
from raysweep.encoders.locate import locate
from raysweep.encoders.provenance import Provenance
from raysweep.errors import InputError
from raysweep.evaluation.operating_points import LABELED, Head
from raysweep.export import joined_encoder, model_card, saved_model
from raysweep.export.model_card import CARD, CardFacts
from raysweep.export.run_encoders import RunEncoders
from raysweep.report.summary import Member, Summary, summary_of
from raysweep.results.events import TrialStarted
from raysweep.results.ledger import events_of, point_folder
from raysweep.results.settings_file import read_settings
from raysweep.results.types import Point
from raysweep.storage.folder import Folder, as_folder
from raysweep.training.weights import read_point

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from sentence_transformers import SentenceTransformer


MOST_NAMED = 12  # points in the message for an unknown one


def export(place: Path | Folder, point: str, to: Path, hub_name: str | None = None) -> str:
    """Write the model of a point of a run's front, ``knee``, ``best`` or a point's name, to the new folder ``to``.

    It loads with ``SentenceTransformer(to)``, without raysweep. Its model card contains the code to load it, from
    ``hub_name`` if given. The saved model is loaded again and verified before the folder gets its final name. After an
    error, nothing is left behind.

    Returns:
        A description of the exported point, with the guards that it misses or was not measured by.

    Raises:
        InputError: If the point does not exist, ``to`` exists, two encoders cannot be joined, the saved model returns
            other vectors, or the run's settings have changed since it began.
    """
    if to.exists():
        raise InputError(f"{to}: exists already; export writes a new folder")
    run = as_folder(place)
    summary = summary_of(run)
    member = _choose(run, summary, point)
    chosen = member.dev
    settings = read_settings(run, summary.results)
    encoders = RunEncoders.of(run)
    model, embed = _build(run, chosen, encoders)
    data = _data_config(settings)
    facts = CardFacts(
        summary,
        member,
        encoders,
        data,
        _run_of(run, chosen),
        hub_name,
        pool_seed=_pool_seed(settings),
        unmeasured=tuple(name for name in _mapping(settings, "guards") if name not in member.guards),
    )
    sentences = saved_model.sample_sentences(run)
    expected = saved_model.Expected(sentences, embed(sentences), _similarity(chosen))
    _write(model, expected, _provenance(run, chosen, encoders, data), facts, to)
    written = (
        f"{chosen.name} (dev P {100 * chosen.polarity:.2f}, S {100 * chosen.similarity:.2f}, width {chosen.width}) "
        f"written to {to}"
    )
    if chosen.kind == LABELED:
        written += f": it embeds queries; what is retrieved has known labels, and {CARD} says how it is embedded"
    return ". ".join([written, *model_card.guard_warnings(facts)])


def model_of(run: Folder, chosen: Point) -> "SentenceTransformer":
    """Return the model that would be exported for a point, or raise InputError like :func:`export`."""
    return _build(run, chosen, RunEncoders.of(run)).model


class _PointModel(NamedTuple):
    """The model of a point. ``embed`` embeds sentences with the encoders that the point was scored with."""

    model: "SentenceTransformer"
    embed: Callable[[Sequence[str]], saved_model.Embeddings]


def _build(run: Folder, chosen: Point, encoders: RunEncoders) -> _PointModel:
    weights, head = _read_weights(run, chosen)
    model = tuned = _tuned(encoders, chosen, weights)
    prompt = encoders.prompt
    embed = partial(saved_model.embed_tuned, tuned, prompt)
    if chosen.kind in joined_encoder.KINDS:
        reference = _load_reference(encoders, chosen)
        embed = partial(saved_model.embed_joined, chosen.key, (tuned, reference), head, prompt)
        model = joined_encoder.build(chosen.key, tuned, reference, head)
        model.prompts = tuned.prompts
    model.similarity_fn_name = _similarity(chosen)  # override the base model's setting
    _set_prompt(model, prompt)
    return _PointModel(model, embed)


def _choose(run: Folder, summary: Summary, point: str) -> Member:
    """Return the point with this name on the front, or on the front of points that use the pool's labels."""
    members = summary.members
    if not members:
        raise InputError(f"{run.location}: no trial finished a rung, so there is nothing to export")
    wanted = point.removesuffix(":plain").replace("(", "=").replace(")", "")  # the notation of the report's table
    for member in members:
        names = [member.dev.name]
        if member.is_knee:
            names.append("knee")
        if member.is_best:
            names.append("best")
        if wanted in names:
            return member
    for member in summary.labeled:
        if wanted == member.dev.name:
            return member
    labeled = (member.dev for member in summary.labeled)
    with_weights = [point.name for point in labeled if run.exists(_folder_of_weights(point))]
    names = [*(member.dev.name for member in members), *with_weights]
    others = f" and {len(names) - MOST_NAMED} more, which raysweep show lists" if len(names) > MOST_NAMED else ""
    allowed = ", ".join(["knee", "best", *names[:MOST_NAMED]])
    raise InputError(f"--point {wanted}: not on the front; allowed: {allowed}{others}")


def _read_weights(run: Folder, chosen: Point) -> "tuple[dict[str, torch.Tensor], Head | None]":
    """Return the trained weights of the point's rung, and its head."""
    name = _folder_of_weights(chosen)
    if not run.exists(name):
        if chosen.kind == LABELED:
            raise InputError(
                f"{run.location}: the weights of {chosen.name} are not there: they are kept of rungs that have a point on "
                "the ordinary front too"
            )
        raise InputError(
            f"{run.location}: the weights of {chosen.name} are not there: {name} is gone, or storage.max_gib was reached "
            "and they were not kept"
        )
    folder = run.fetch(name)
    try:
        return read_point(folder)
    except (OSError, ValueError) as error:
        raise InputError(f"{run.location}/{name}: damaged: {error}") from None


def _folder_of_weights(point: Point) -> str:
    assert point.trial is not None and point.step is not None
    return point_folder(point.trial, point.step)


def _tuned(encoders: RunEncoders, chosen: Point, weights: "Mapping[str, torch.Tensor]") -> "SentenceTransformer":
    """Return the base model with the trained weights, or with weights interpolated between the two."""
    model = _load(encoders.model, encoders.model_identity, "frozen weights are taken from it")
    base = model.state_dict()
    _check_fit(weights, base, chosen)
    if chosen.kind == "interpolate":
        assert chosen.value is not None
        weights = {name: base[name].lerp(weight, chosen.value) for name, weight in weights.items()}
    model.load_state_dict({**base, **weights})
    return model


def _check_fit(weights: "Mapping[str, torch.Tensor]", base: "Mapping[str, torch.Tensor]", chosen: Point) -> None:
    """Raise InputError if the trained weights do not match the base model's parameters."""
    for name, weight in weights.items():
        if name not in base or base[name].shape != weight.shape:
            shape = tuple(weight.shape)
            raise InputError(
                f"the weights of {chosen.name} are damaged: the run's model has no {name} of shape {shape}"
            )


def _load_reference(encoders: RunEncoders, chosen: Point) -> "SentenceTransformer":
    """Load the reference encoder, for a point that includes it."""
    model, reference = encoders.model, encoders.reference
    if (reference.prompt, reference.max_tokens) != (model.prompt, model.max_tokens):
        raise InputError(f"{chosen.name} cannot be exported: the reference encoder has another prompt or max_tokens")
    return _load(reference, encoders.reference_identity, "it is part of this point")


def _load(config: EncoderConfig, identity: str, why: str) -> "SentenceTransformer":
    source = locate(config)
    if source.identity != identity:
        raise InputError(f"model {config.name!r} has changed since the run, and {why}")
    return encoder.load(config, source=source)


def _similarity(chosen: Point) -> Literal["cosine", "dot"]:
    """Return the similarity function of the point."""
    return "dot" if chosen.kind in joined_encoder.BY_PRODUCT else "cosine"


def _set_prompt(model: "SentenceTransformer", prompt: str) -> None:
    """Make ``encode``, ``encode_query`` and ``encode_document`` use ``prompt``, and the same maximum length.

    Prompts with other names remain those of the base model.
    """
    model.prompts = {**model.prompts, "query": prompt, "document": prompt}
    model.default_prompt_name = "query" if prompt else None
    for module in model.modules():
        for name in ("query_expansion", "query_length", "document_length"):  # the setters require this order
            if hasattr(module, name):
                setattr(module, name, None)


def _data_config(settings: "Mapping[str, Any]") -> DataConfig | None:
    """Return the run's data settings, or None if they are lost."""
    with contextlib.suppress(ValidationError):
        return DataConfig.model_validate(settings.get("data", {}))
    return None


def _pool_seed(settings: "Mapping[str, Any]") -> int | None:
    """Return the seed of the run's pools, or None if its settings are lost."""
    seed = _mapping(settings, "evaluation").get("pool_seed")
    return seed if isinstance(seed, int) else None


def _mapping(settings: "Mapping[str, Any]", key: str) -> "Mapping[str, Any]":
    """Return a section of the settings, empty if it is missing."""
    found = settings.get(key)
    return found if isinstance(found, dict) else {}


def _run_of(run: Folder, chosen: Point) -> int:
    """Return the replicate number of a point's trial, 0 if it is not a replicate."""
    begun = (event for event in events_of(run) if isinstance(event, TrialStarted))
    return next((event.run or 0 for event in begun if event.trial == chosen.trial), 0)


def _provenance(run: Folder, chosen: Point, encoders: RunEncoders, data: DataConfig | None) -> Provenance:
    """Return the model's provenance, with its tuning data from the run's settings."""
    if data is None:
        return Provenance(run.location, chosen.name, encoders.model.name, ())
    sources = (data.train,) if isinstance(data.train, str) else tuple(data.train)
    return Provenance(run.location, chosen.name, encoders.model.name, sources, data.subset, data.text_column)


def _write(
    model: "SentenceTransformer", expected: saved_model.Expected, provenance: Provenance, facts: CardFacts, to: Path
) -> None:
    """Save the model and its card under a temporary name, verify the folder, and rename it."""
    temporary = to.with_name(f".{to.name}.{os.getpid()}")
    try:
        with _removed_on_failure(temporary):
            model.save(str(temporary), create_model_card=False)
            saved_model.check(temporary, expected, to)
            provenance.write(temporary)
            model_card.write(model, facts, temporary, to.name)
            temporary.rename(to)
    except OSError as error:
        raise InputError(f"{to}: cannot be written: {error.strerror or error}") from None


@contextlib.contextmanager
def _removed_on_failure(temporary: Path) -> Iterator[None]:
    """On failure within the context, remove ``temporary`` and the parent folders created for it."""
    missing = [parent for parent in temporary.parents if not parent.exists()]
    try:
        yield
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        for parent in missing:
            with contextlib.suppress(OSError):  # never created, or now contains other files
                parent.rmdir()
        raise
