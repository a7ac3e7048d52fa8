"""Guards: sentence-transformers evaluators that score the members of a front on other data."""

import hashlib
import itertools
import re
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from raysweep.config.strict import StrictModel
from raysweep.config.trial import parameter_names
from raysweep.metrics import scores
from raysweep.storage import location


def absolute_file(source: str) -> str:
    """Return the absolute path of a local file, or a URI unchanged."""
    if not source:
        raise ValueError("is empty; allowed: the path or URI of a file")
    location.reject_null(source)
    if location.is_uri(source):
        return location.reject_keys(source)
    return str(location.expand_home(source).absolute())


File = Annotated[str, AfterValidator(absolute_file)]

NEEDED = {"sts": ("pairs",), "retrieval": ("queries", "corpus", "relevant")}
"""The files that each kind of guard requires."""


class GuardConfig(StrictModel):
    """A guard: `sts` correlates cosines with gold scores (Spearman); `retrieval` ranks a corpus (nDCG@10)."""

    kind: Literal["sts", "retrieval"] = Field(
        description="sentence-transformers evaluator that computes the score"
    )
    pairs: File | None = Field(
        None,
        description="for sts: file with the columns sentence1, sentence2 and score, or a .tsv with the score and both "
        "sentences",
    )
    queries: File | None = Field(
        None, description="for retrieval: file with the columns id and text"
    )
    corpus: File | None = Field(
        None, description="for retrieval: file with the columns id and text"
    )
    relevant: File | None = Field(
        None, description="for retrieval: file with the columns query and document, which hold ids"
    )
    at_least: float | None = Field(
        None,
        ge=-1,
        le=1,
        description="minimum score for a member to be chosen as the knee or the best point; no limit if not given",
    )

    @property
    def files_digest(self) -> str:
        """Return a digest of the kind and the file names, but not of the files' contents."""
        files = [getattr(self, name) for name in NEEDED[self.kind]]
        content = "\0".join([self.kind, *files])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @model_validator(mode="after")
    def _check_files(self) -> "GuardConfig":
        needed = NEEDED[self.kind]
        for name in itertools.chain.from_iterable(NEEDED.values()):
            is_given = getattr(self, name) is not None
            is_needed = name in needed
            if is_given != is_needed:
                problem = "is missing" if is_needed else "is not allowed"
                raise ValueError(
                    f"{name} {problem}; a guard of kind {self.kind} takes {', '.join(needed)}"
                )
        return self


_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
_MAX_CHARACTERS = 40  # maximum length of a name


def _check_names(guards: dict[str, GuardConfig]) -> dict[str, GuardConfig]:
    for name in guards:
        if re.fullmatch(_NAME, name) is None or len(name) > _MAX_CHARACTERS:
            raise ValueError(
                f"the name of a guard is {name!r}; allowed: a letter or digit, followed by letters, digits and "
                f". _ -, with at most {_MAX_CHARACTERS} characters in total"
            )
    return guards


GuardName = Annotated[
    str, WithJsonSchema({"type": "string", "pattern": _NAME, "maxLength": _MAX_CHARACTERS})
]

Guards = Annotated[dict[GuardName, GuardConfig], AfterValidator(_check_names)]

SCORES = ("P", "S", "polarity", "similarity", "retention", "accuracy", "objective")
PLACES = (
    "point",
    "trial",
    "step",
    "rung",
    "kind",
    "value",
    "width",
    "encoders",
    "split",
    "dev",
    "test",
)
OTHERS = ("mark", "knee", "best", "configuration", "status", "reason", "none")
RESERVED = (*SCORES, *PLACES, *OTHERS)
"""Names that guards cannot have. The parameters of trials are also reserved."""


def find_reserved_name(guards: Iterable[str]) -> str:
    """Return an error message for the first guard with a reserved name, or an empty string."""
    parameters = parameter_names()
    listed = dict.fromkeys((*RESERVED, *scores.SCORES))
    reserved = {name.lower() for name in (*listed, *parameters)}
    for name in guards:
        if name.lower() in reserved:
            use = "a parameter of trials" if name.lower() in parameters else "a column or a score"
            return (
                f"the name {name} is reserved: it is {use}; reserved names: {', '.join(listed)}, and the parameters of "
                "a trial, such as loss and margin"
            )
    return ""
