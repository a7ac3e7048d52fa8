"""A point of the front as a sentence-transformers model on disk."""

from pathlib import Path

import yaml

from raysweep import encoder
from raysweep.config import EncoderConfig
from raysweep.errors import InputError
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
    settings = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    model = encoder.load(EncoderConfig(**settings["model"]))
    model.load_state_dict({**model.state_dict(), **weights})
    model.save(str(to), create_model_card=False)
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
