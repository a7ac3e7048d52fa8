"""Verification that a saved model returns the vectors that its point was scored with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from raysweep.data import demo
from raysweep.data.prepared import Prepared
from raysweep.encoders import encoder
from raysweep.errors import InputError
from raysweep.evaluation.operating_points import Head
from raysweep.results.types import PointKey
from raysweep.storage.folder import Folder
from raysweep.storage.location import is_uri

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Embeddings = npt.NDArray[np.float32]  # (sentences, width)

NUM_SENTENCES = 32
LONG_TEXT = 4000  # characters, about 1,000 tokens
MOST_APART = 1e-5  # maximum difference of coordinates of unit vectors
MOST_APART_WITH_CLASSES = 1e-4  # with class probabilities, whose logits amplify rounding errors


def sample_sentences(run: Folder) -> list[str]:
    """Return some sentences of the run's data, or of the demo if its artifacts are missing or in an object store.

    They include capitals, accents, and a text that most models truncate.
    """
    sentences = _read_sentences(run) or [row.text for row in demo.generate()[0][:NUM_SENTENCES]]
    long_text = " ".join(sentences)[:LONG_TEXT]
    return [*sentences, *encoder.PROBES, long_text]


def _read_sentences(run: Folder) -> list[str]:
    try:
        prepared = Prepared.read(run.fetch("prepared.json"))
        artifact = prepared.sentences_artifact
        if is_uri(artifact.location) or not artifact.exists:
            return []
        sentences = prepared.sentences
        ids = np.linspace(0, len(sentences) - 1, NUM_SENTENCES).astype(np.int64)
        return sentences.texts(ids)
    except (InputError, OSError):
        return []  # the run can be exported without its artifacts


def embed_tuned(model: "SentenceTransformer", prompt: str, sentences: Sequence[str]) -> Embeddings:
    """Return the vectors (sentences, width) of a point with a single encoder, embedded like in its rung."""
    return encoder.embed_texts(model, sentences, prompt, unit=False)


def embed_joined(
    key: PointKey,
    models: "tuple[SentenceTransformer, SentenceTransformer]",
    head: Head | None,
    prompt: str,
    sentences: Sequence[str],
) -> Embeddings:
    """Return the vectors (sentences, width) of a point that joins the tuned with the reference encoder.

    Their inner products are the point's sums of cosines, by the formulas of
    :mod:`raysweep.evaluation.operating_points`.
    """
    kind, value = key
    assert value is not None
    tuned, reference = (encoder.embed_texts(model, sentences, prompt) for model in models)
    if kind != "concat":
        assert head is not None
        return _join(value**0.5 * head.probabilities(tuned), reference)
    return _join(value**0.5 * tuned, reference) / np.float32((1 + value) ** 0.5)


def _join(first: Embeddings, second: Embeddings) -> Embeddings:
    joined: Embeddings = np.hstack([first, second], dtype=np.float32)
    return joined


@dataclass(frozen=True)
class Expected:
    """The vectors of some sentences that a point was scored with, and their similarity function."""

    sentences: Sequence[str]
    embeddings: Embeddings
    similarity: Literal["cosine", "dot"]  # dot for vectors with class probabilities

    def difference(self, embeddings: Embeddings) -> str:
        """Return how vectors of the sentences differ from the expected ones; empty if they do not."""
        if embeddings.shape != self.embeddings.shape:
            widths = embeddings.shape[-1], self.embeddings.shape[-1]
            return "gives vectors of width {}, and those that were scored have {}".format(*widths)
        allowed = MOST_APART_WITH_CLASSES if self.similarity == "dot" else MOST_APART
        length = max(1.0, float(np.linalg.norm(self.embeddings, axis=1).max()))
        distance = float(np.abs(embeddings - self.embeddings).max()) / length
        if distance <= allowed:  # false for NaN
            return ""
        return f"gives other vectors than the run's weights (apart by {distance:.2g}, allowed: {allowed:g})"


def check(folder: Path, expected: Expected, to: Path) -> None:
    """Load a saved model as its users will, and raise InputError if its vectors are not the expected ones."""
    from sentence_transformers import SentenceTransformer

    try:
        with encoder.without_progress_bars():
            model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
            found = _embed(model, expected.sentences)
    except Exception as error:  # loading may fail in any layer below
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"{to}: not written: the saved model cannot be loaded: {reason}") from None
    for method, embeddings in found.items():
        problem = expected.difference(embeddings)
        if problem:
            raise InputError(f"{to}: not written: {method} of the saved model {problem}")
    if model.similarity_fn_name != expected.similarity:
        raise InputError(
            f"{to}: not written: the saved model compares by {model.similarity_fn_name}, and was scored by "
            f"{expected.similarity}"
        )


def _embed(model: "SentenceTransformer", sentences: Sequence[str]) -> Mapping[str, Embeddings]:
    methods = (model.encode, model.encode_query, model.encode_document)
    return {method.__name__: method(list(sentences), show_progress_bar=False) for method in methods}
