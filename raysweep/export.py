"""A point of the front as a sentence-transformers model on disk."""

import json
import os
import shutil
from pathlib import Path

from raysweep import encoder
from raysweep.config import EncoderConfig
from raysweep.errors import InputError
from raysweep.model_source import locate
from raysweep.results import Point, load, point_name
from raysweep.summary import summarise
from raysweep.weights import read_point


def export(run: Path, point: str, to: Path) -> str:
    """Write the model of ``point`` (``knee``, ``best`` or ``TRIAL:STEP``) of a run's front to the new folder ``to``.

    Returns a sentence that says what was written. InputError when there is no such point or ``to`` exists.
    """
    if to.exists():
        raise InputError(f"{to}: exists already; export writes a new folder")
    chosen = _choose(run, point)
    assert chosen.trial is not None and chosen.step is not None
    weights = read_point(run / "points" / point_name(chosen.trial, chosen.step))
    prepared = json.loads((run / "prepared.json").read_text(encoding="utf-8"))
    config = EncoderConfig(**prepared["model"])
    source = locate(config)
    if source.identity != prepared["model_identity"]:
        raise InputError(f"model {config.name!r} has changed since the run, and frozen weights are taken from it")
    model = encoder.load(config, source=source)
    model.load_state_dict({**model.state_dict(), **weights})
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
        f"trial {chosen.trial}, step {chosen.step} (dev P {100 * chosen.polarity:.2f}, S {100 * chosen.similarity:.2f}) "
        f"written to {to}"
    )


def _choose(run: Path, point: str) -> Point:
    members = summarise(load(run)).members
    if not members:
        raise InputError(f"{run}: no trial finished a rung, so there is nothing to export")
    for member in members:
        name = f"{member.dev.trial}:{member.dev.step}"
        if point == name or (point == "knee" and member.is_knee) or (point == "best" and member.is_best):
            return member.dev
    names = ", ".join(f"{member.dev.trial}:{member.dev.step}" for member in members)
    raise InputError(f"--point {point}: not on the front; allowed: knee, best, {names}")
