"""Teachers for distillation: class probabilities from another run's softmax head."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from raysweep.config import packages
from raysweep.config.sweep import EncoderConfig, TeacherConfig
from raysweep.data.dataset import Sentences
from raysweep.data.prepared import Prepared
from raysweep.encoders import encoder
from raysweep.encoders.locate import locate, locate_same
from raysweep.errors import InputError
from raysweep.evaluation.operating_points import Head
from raysweep.results.ledger import point_folder
from raysweep.results.reader import load
from raysweep.results.types import Calibration, Results
from raysweep.storage.folder import Folder, open_folder
from raysweep.training.weights import read_point

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

SENTENCES_AT_ONCE = 100_000


@dataclass(frozen=True)
class Teacher:
    """A rung from a run with the ``softmax`` loss.

    Attributes:
        run: The run's folder or URI.
        trial: The trial's number.
        step: The rung's number.
        label_names: The classes, in the order of the teacher's probabilities.
        encoder: The base model and its prompt.
        identity: The identity of the base model's files.
        trained_on: The name of the artifact with the run's sentences.
        weights: SHA-256 of the trained weights and the head.
    """

    run: str
    trial: int
    step: int
    label_names: tuple[str, ...]
    encoder: EncoderConfig
    identity: str
    trained_on: str
    weights: str

    @classmethod
    def find(cls, config: TeacherConfig) -> "Teacher":
        """Return the rung with the lowest cross-entropy on dev among those with stored weights.

        Raises:
            InputError: If the folder is not a run or has no such rung, or if the base model has changed.
        """
        run = open_folder(config.run)
        try:
            results = load(run)
        except InputError as error:
            raise InputError(f"teacher.run: {error}") from None
        rung = _choose_rung(run, results, config.trial)
        assert rung.trial is not None and rung.step is not None
        prepared = Prepared.read(run.fetch("prepared.json"))
        model = EncoderConfig(**prepared.model)
        if locate(model).identity != prepared.model_identity:
            raise InputError(
                f"teacher.run is {config.run}, but its model {model.name!r} has changed since that run"
            )
        return cls(
            run=config.run,
            trial=rung.trial,
            step=rung.step,
            label_names=results.info.label_names,
            encoder=model,
            identity=prepared.model_identity,
            trained_on=prepared.sentences_artifact.name,
            weights=_digest(run, rung.trial, rung.step),
        )

    def check_classes(self, label_names: Sequence[str]) -> None:
        """Raise InputError unless the teacher has exactly these classes."""
        if tuple(label_names) != self.label_names:
            raise InputError(
                f"teacher.run is {self.run}, whose classes are {_shown(self.label_names)}; allowed: a run with the classes "
                f"of data.train, {_shown(label_names)}"
            )

    def count_seen(self, sentences: Sentences) -> int:
        """Return the number of dev sentences that the teacher was trained on.

        Return 0 if the teacher's training sentences have been deleted.
        """
        prepared = Prepared.read(open_folder(self.run).fetch("prepared.json"))
        if not prepared.sentences_artifact.exists:
            return 0
        unseen = set(sentences.texts(sentences.ids("dev")))
        num_dev = len(unseen)
        trained = prepared.sentences.ids("train")
        for start in range(0, len(trained), SENTENCES_AT_ONCE):
            ids = trained[start : start + SENTENCES_AT_ONCE]
            unseen.difference_update(prepared.sentences.texts(ids))
        return num_dev - len(unseen)

    def load(self, device: str = "cpu", artifacts: str | None = None) -> "LoadedTeacher":
        """Load the encoder with the rung's weights and head.

        The base model may be loaded from a copy in ``artifacts``.

        Raises:
            InputError: If the weights or the base model are missing or damaged, or if the base model has changed.
        """
        from raysweep.training.trainable import Trainable

        source = locate_same(self.encoder, self.identity, artifacts)
        folder = open_folder(self.run).fetch(point_folder(self.trial, self.step))
        try:
            weights, head = read_point(folder)
            if weights.lora is not None:
                packages.check(packages.needs_of_adapters("teacher.run", ["lora"]))
            model = encoder.load(self.encoder, role="tuned", device=device, source=source)
            trainable = Trainable(model)
            trainable.load(weights)
        except (OSError, ValueError) as error:
            raise InputError(f"teacher.run: {folder}: damaged: {error}") from None
        trainable.finish()
        assert head is not None
        return LoadedTeacher(model, head, self.encoder)


@dataclass(frozen=True)
class LoadedTeacher:
    """A teacher's encoder and head in memory."""

    model: "SentenceTransformer"
    head: Head
    config: EncoderConfig

    def probabilities(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return the class probabilities (texts, classes), with the prompt added to each text."""
        # losses on labeled sentences train the document side
        prompt = self.config.prompt_on("document") or ""
        embeddings = encoder.embed_texts(
            self.model, texts, prompt, arithmetic=self.config.precision
        )
        return self.head.probabilities(encoder.finite(embeddings, self.config)).astype(
            np.float32, copy=False
        )


def _choose_rung(run: Folder, results: Results, trial: int | None) -> Calibration:
    rungs = [calibration for calibration in results.calibrations if calibration.split == "dev"]
    if not rungs:
        raise InputError(
            f"teacher.run is {run.location}, which has no finished rung with the softmax loss; allowed: a run that has one"
        )
    stored = [rung for rung in rungs if run.exists(point_folder(rung.trial, rung.step))]  # type: ignore[arg-type]
    if not stored:
        raise InputError(
            f"teacher.run is {run.location}, whose weights were removed; allowed: a run with stored weights "
            "for the softmax loss"
        )
    candidates = [rung for rung in stored if trial in (None, rung.trial)]
    if not candidates:
        trials = sorted({rung.trial for rung in stored if rung.trial is not None})
        raise InputError(
            f"teacher.trial is {trial}; allowed: a trial with the softmax loss and stored weights in {run.location}: "
            f"{', '.join(map(str, trials))}"
        )
    return min(candidates, key=lambda rung: rung.cross_entropy)


def _digest(run: Folder, trial: int, step: int) -> str:
    """Return the SHA-256 digest of a rung's weights and head."""
    folder = run.fetch(point_folder(trial, step))
    digest = hashlib.sha256()
    for name in ("trained.safetensors", "head.npz"):
        try:
            with (folder / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise InputError(f"teacher.run: {folder / name}: {error.strerror}") from None
    return digest.hexdigest()


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
