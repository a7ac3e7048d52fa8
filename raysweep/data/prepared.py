"""The prepared artifacts of a sweep, and the file that lists them."""

import json
import uuid
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from raysweep.config.loss_spec import EXAMPLES, LossExamples
from raysweep.config.sides import Sides
from raysweep.data.artifacts import Artifact
from raysweep.data.dataset import Sentences
from raysweep.data.expert_scores import ExpertScores
from raysweep.data.sequence import SentenceSequence, join_rows
from raysweep.data.shards import Rows, open_array
from raysweep.errors import InputError
from raysweep.storage import location
from raysweep.storage.folder import open_folder


@dataclass(frozen=True)
class TaskArtifacts:
    """The sentences of one data set in a sequence, and their unit embeddings from the reference encoder."""

    sentences: Artifact
    embeddings: Sides[Artifact]


@dataclass(frozen=True)
class Prepared:
    """The artifacts that a sweep's trials read, opened as memory maps on first use.

    For a sequence of data sets, ``tasks`` contains the data sets in order, and fields for a single data set refer to the
    first one.
    """

    model: dict[str, Any]  # the candidate encoder's EncoderConfig, as plain values
    model_identity: str
    sentences_artifact: Artifact
    tokens_artifacts: Sides[Artifact]  # the candidate encoder's tokens
    reference_artifacts: Sides[Artifact]  # the reference encoder's unit embeddings
    examples_artifacts: dict[str, Artifact]  # keyed by example kind
    reference: dict[str, Any]  # the reference encoder's EncoderConfig
    reference_identity: str
    # the experts' scores for train and dev; may be empty
    scores_artifacts: dict[str, Artifact] = field(default_factory=dict)
    # the teacher's class probabilities, if trials learn from a teacher
    teacher_artifact: Artifact | None = None
    tasks: dict[str, TaskArtifacts] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """Return only the fields, excluding the cached memory maps."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return (
            *self.examples_artifacts.values(),
            *self.scores_artifacts.values(),
            self.sentences_artifact,
            *self.tokens_artifacts.distinct,
            *self.reference_artifacts.distinct,
            *([self.teacher_artifact] if self.teacher_artifact else []),
            *(
                artifact
                for task in self.tasks.values()
                for artifact in (task.sentences, *task.embeddings.distinct)
            ),
        )

    @cached_property
    def parts(self) -> "dict[str, Prepared]":
        """Return the artifacts of each data set of a sequence, by name."""
        return {
            name: replace(
                self,
                sentences_artifact=task.sentences,
                reference_artifacts=task.embeddings,
                tasks={},
            )
            for name, task in self.tasks.items()
        }

    def save(self, path: Path) -> None:
        """Write the artifact names as JSON, atomically."""
        values: dict[str, Any] = {
            "artifacts": self.sentences_artifact.location,
            "sentences": self.sentences_artifact.name,
            **_names_by_key("tokens", self.tokens_artifacts),
            **_names_by_key("reference_embeddings", self.reference_artifacts),
            "examples": {kind: artifact.name for kind, artifact in self.examples_artifacts.items()},
            "scores": {split: artifact.name for split, artifact in self.scores_artifacts.items()},
            "model": self.model,
            "model_identity": self.model_identity,
            "reference": self.reference,
            "reference_identity": self.reference_identity,
        }
        if self.teacher_artifact is not None:
            values["teacher"] = self.teacher_artifact.name
        if self.tasks:
            values["tasks"] = [
                {
                    "name": name,
                    "sentences": task.sentences.name,
                    **_names_by_key("embeddings", task.embeddings),
                }
                for name, task in self.tasks.items()
            ]
        temporary = path.with_suffix(f".{uuid.uuid4().hex[:8]}.tmp")
        temporary.write_text(json.dumps(values, indent=1, default=str), encoding="utf-8")
        temporary.replace(path)

    @classmethod
    def open(cls, path: str | Path) -> "Prepared":
        """Read a file written by ``raysweep prepare``, given its path or URI.

        Raises:
            InputError: If the file or one of its artifacts is missing.
        """
        try:
            place = location.absolute(str(path))
        except ValueError as error:
            raise InputError(str(error)) from None  # the message omits credentials
        folder = open_folder(location.parent(place))
        file = folder.fetch(location.base_name(place))
        if not file.is_file():
            raise _not_prepared(path)
        prepared = cls.read(file, folder.location)
        for artifact in prepared.artifacts:
            if not artifact.exists:
                place = location.join(artifact.location, artifact.name)
                raise InputError(f"{path}: the artifact {place} is missing; prepare again")
        return prepared

    @classmethod
    def read(cls, path: str | Path, folder: str | None = None) -> "Prepared":
        """Read the file like :meth:`open`, but without checking that the artifacts exist.

        The artifacts are read from ``folder`` if the sentences, tokens and reference embeddings exist there, and
        otherwise from the location recorded in the file.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
            values = json.loads(text)
            tokens, embeddings = (
                _names_by_side(values, key) for key in ("tokens", "reference_embeddings")
            )
            names = (values["sentences"], *tokens.distinct, *embeddings.distinct)
            names_of_examples = values["examples"]
            names_of_scores = values["scores"]
            name_of_teacher = values.get("teacher")
            optional_names = [name_of_teacher] if name_of_teacher else []
            names_of_tasks = {
                task["name"]: (task["sentences"], _names_by_side(task, "embeddings"))
                for task in values.get("tasks", [])
            }
            for sentences_name, embeddings_names in names_of_tasks.values():
                optional_names += [sentences_name, *embeddings_names.distinct]
            for name in (
                *names,
                *optional_names,
                *names_of_examples.values(),
                *names_of_scores.values(),
            ):
                # reject paths outside the artifacts folder
                if name == ".." or Path(name).name != name:
                    raise InputError(
                        f"{path}: the artifact is {name!r}; allowed: a name without slashes"
                    )
            is_moved = folder is not None and all(Artifact(folder, name).exists for name in names)
            place = folder if folder is not None and is_moved else values["artifacts"]
            artifact = partial(Artifact, place)
            return cls(
                model=values["model"],
                model_identity=values["model_identity"],
                sentences_artifact=artifact(values["sentences"]),
                tokens_artifacts=tokens.map(artifact),
                reference_artifacts=embeddings.map(artifact),
                examples_artifacts={
                    kind: artifact(name) for kind, name in names_of_examples.items()
                },
                reference=values["reference"],
                reference_identity=values["reference_identity"],
                scores_artifacts={split: artifact(name) for split, name in names_of_scores.items()},
                teacher_artifact=artifact(name_of_teacher) if name_of_teacher else None,
                tasks={
                    name: TaskArtifacts(artifact(sentences_name), embeddings_names.map(artifact))
                    for name, (sentences_name, embeddings_names) in names_of_tasks.items()
                },
            )
        except InputError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise _not_prepared(path) from None

    @cached_property
    def sentences(self) -> Sentences:
        if self.tasks:
            return SentenceSequence({name: part.sentences for name, part in self.parts.items()})
        return Sentences(self.sentences_artifact.folder)

    @property
    def sequence(self) -> SentenceSequence:
        """Return the sentences of a sweep over a sequence of data sets."""
        assert isinstance(self.sentences, SentenceSequence)
        return self.sentences

    @cached_property
    def reference_embeddings(self) -> Sides[Rows]:
        """Return the reference encoder's unit embeddings of all sentences, float32 (sentences, width)."""
        if self.tasks:
            embeddings = [part.reference_embeddings for part in self.parts.values()]
            documents = join_rows([of_part.document for of_part in embeddings])
            is_shared = all(of_part.is_shared for of_part in embeddings)
            queries = (
                documents if is_shared else join_rows([of_part.query for of_part in embeddings])
            )
            return Sides(queries, documents)
        return self.reference_artifacts.map(
            lambda artifact: open_array(artifact.folder, "embeddings")
        )

    @cached_property
    def teacher_probabilities(self) -> Rows:
        """Return the teacher's class probabilities for all sentences, float32 (sentences, classes)."""
        if self.teacher_artifact is None:
            raise InputError(
                "targets is teacher, but no teacher was prepared; allowed without a teacher: labels"
            )
        return open_array(self.teacher_artifact.folder, "probabilities")

    def examples(
        self, kind: LossExamples
    ) -> tuple[npt.NDArray[np.integer], npt.NDArray[Any] | None]:
        """Return all examples of one kind: sentence ids (examples, 1 to 3), and targets (examples,) or None."""
        if kind == "labeled_sentence":
            train = self.sentences.ids("train")
            labels = np.asarray(self.sentences.labels[train])
            return train[:, None], labels
        if kind not in self.examples_artifacts:
            kinds = ", ".join(["labeled_sentence", *self.examples_artifacts])
            raise InputError(
                f"examples: kind is {kind!r}, which was not prepared; allowed: {kinds}"
            )
        folder = self.examples_artifacts[kind].folder
        ids = np.asarray(open_array(folder, "ids"))
        has_targets = EXAMPLES[kind].targets != "none"
        return ids, np.asarray(open_array(folder, "targets")) if has_targets else None

    def soft_targets(self, rule: str) -> npt.NDArray[np.float32]:
        """Return the target cosines (examples,) of the scored pairs, computed with a soft-target rule.

        Raises:
            InputError: If the sweep was prepared without experts.
        """
        return self._expert_scores("train", rule).targets(rule)

    def dev_pairs(self, rule: str) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.float32]]:
        """Return the sentence ids (pairs, 2) and soft targets (pairs,) of the dev pairs."""
        targets = self._expert_scores("dev", rule).targets(rule)
        return np.asarray(open_array(self.scores_artifacts["dev"].folder, "ids")), targets

    def _expert_scores(self, split: str, rule: str) -> ExpertScores:
        if split not in self.scores_artifacts:
            raise InputError(f"targets is {rule!r}; allowed without examples.experts: hard")
        return ExpertScores.open(self.scores_artifacts[split].folder)

    def target_cosines(self, kind: str) -> tuple[float, float]:
        """Return the target cosines of scored pairs from the same class and from different classes."""
        parameters = (
            self.examples_artifacts[kind].parameters if kind in self.examples_artifacts else {}
        )
        same_class, other_class = parameters.get("cosines", (1.0, 0.0))
        return same_class, other_class


def _names_by_key(key: str, artifacts: Sides[Artifact]) -> dict[str, str]:
    """Return the artifact names under ``KEY`` and, if queries have their own artifact, ``query_KEY``."""
    names = {key: artifacts.document.name}
    if not artifacts.is_shared:
        names[f"query_{key}"] = artifacts.query.name
    return names


def _names_by_side(values: dict[str, Any], key: str) -> Sides[str]:
    name = values[key]
    return Sides.merge(values.get(f"query_{key}", name), name)


def _not_prepared(path: str | Path) -> InputError:
    return InputError(f"{path}: not a file written by raysweep prepare")
