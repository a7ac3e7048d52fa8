"""A point of the front as a sentence-transformers model on disk."""

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import encoder
from raysweep.encoders.locate import locate
from raysweep.errors import InputError
from raysweep.export import joined_encoder
from raysweep.report.summary import summarise
from raysweep.results.ledger import point_name
from raysweep.results.reader import load
from raysweep.results.types import Point
from raysweep.training.weights import read_point

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def export(run: Path, point: str, to: Path) -> str:
    """Write the model of ``point`` (``knee``, ``best`` or a point's name) of a run's front to the new folder ``to``.

    It loads with ``SentenceTransformer(to)``, without this package. Returns a sentence that says what was written.
    InputError when there is no such point, ``to`` exists, or two encoders cannot be made one model.
    """
    if to.exists():
        raise InputError(f"{to}: exists already; export writes a new folder")
    chosen = _choose(run, point)
    assert chosen.trial is not None and chosen.step is not None
    place = run / "points" / point_name(chosen.trial, chosen.step)
    if not place.is_dir():
        raise InputError(
            f"{run}: the weights of {chosen.name} are not there: {place.relative_to(run)} is gone, or storage.max_gib "
            "was reached and they were not kept"
        )
    try:
        weights, head = read_point(place)
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(f"{place}: damaged: {error}") from None
    try:
        prepared = json.loads((run / "prepared.json").read_text(encoding="utf-8"))
        config, reference = (EncoderConfig(**prepared[name]) for name in ("model", "reference"))
        identity, reference_identity = prepared["model_identity"], prepared["reference_identity"]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{run}: its prepared.json is gone or damaged") from None
    model = _load(config, identity, "frozen weights are taken from it")
    base = model.state_dict()
    if chosen.kind == "interpolate":
        assert chosen.value is not None
        weights = {name: base[name].lerp(weight, chosen.value) for name, weight in weights.items()}
    model.load_state_dict({**base, **weights})
    if chosen.kind in ("concat", "class_concat"):
        if (reference.prompt, reference.max_tokens) != (config.prompt, config.max_tokens):
            raise InputError(
                f"{chosen.name} cannot be exported: the reference encoder has another prompt or max_tokens"
            )
        frozen = _load(reference, reference_identity, "it is part of this point")
        model = joined_encoder.build(chosen.key, model, frozen, head)
    if chosen.kind != "class_concat":  # whatever the base model says: it was scored by cosine
        model.similarity_fn_name = "cosine"
    model.default_prompt_name = None
    if config.prompt:  # so that the exported model, encoding as it is, embeds what was trained
        model.prompts = {**model.prompts, "raysweep": config.prompt}
        model.default_prompt_name = "raysweep"
    temporary = to.with_name(f".{to.name}.{os.getpid()}")
    try:
        model.save(str(temporary), create_model_card=False)
        temporary.rename(to)
    except OSError as error:
        raise InputError(f"{to}: cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return (
        f"{chosen.name} (dev P {100 * chosen.polarity:.2f}, S {100 * chosen.similarity:.2f}, width {chosen.width}) "
        f"written to {to}"
    )


def _load(config: EncoderConfig, identity: str, why: str) -> "SentenceTransformer":
    source = locate(config)
    if source.identity != identity:
        raise InputError(f"model {config.name!r} has changed since the run, and {why}")
    return encoder.load(config, source=source)


def _choose(run: Path, point: str) -> Point:
    members = summarise(load(run)).members
    if not members:
        raise InputError(f"{run}: no trial finished a rung, so there is nothing to export")
    point = point.removesuffix(":plain").replace("(", "=").replace(")", "")  # as the report's table shows it
    for member in members:
        if point == member.dev.name or (point == "knee" and member.is_knee) or (point == "best" and member.is_best):
            return member.dev
    names = ", ".join(member.dev.name for member in members)
    raise InputError(f"--point {point}: not on the front; allowed: knee, best, {names}")
