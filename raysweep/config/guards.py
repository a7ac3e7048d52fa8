"""What front members are also measured by: evaluators of sentence-transformers, over files that a sweep names."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from raysweep.config.strict import Frozen
from raysweep.storage import location


def _absolute(source: str) -> str:
    """A relative path is one of the folder in which the sweep was begun."""
    if not source:
        raise ValueError("must be the path or URI of a file; it is empty")
    location.without_null(source)
    if location.is_uri(source):
        return location.without_keys(source)
    return str(Path(source).expanduser().absolute())


File = Annotated[str, AfterValidator(_absolute)]

NEEDED = {"sts": ("pairs",), "retrieval": ("queries", "corpus", "relevant")}
"""The files of each kind."""


class GuardConfig(Frozen):
    """A guard: `sts` correlates cosines with gold scores (Spearman), `retrieval` ranks a corpus for queries (nDCG@10)."""

    kind: Literal["sts", "retrieval"] = Field(description="which evaluator of sentence-transformers measures it")
    pairs: File | None = Field(
        None, description="of sts: file with the columns sentence1, sentence2 and score, or a .tsv of score and both"
    )
    queries: File | None = Field(None, description="of retrieval: file with the columns id and text")
    corpus: File | None = Field(None, description="of retrieval: file with the columns id and text")
    relevant: File | None = Field(
        None, description="of retrieval: file with the columns query and document, which hold ids"
    )
    at_least: float | None = Field(
        None, ge=-1, le=1, description="what a member has to reach to be the knee or the best; no limit if not given"
    )

    @model_validator(mode="after")
    def _check_files(self) -> "GuardConfig":
        for kind, names in NEEDED.items():
            for name in names:
                is_given = getattr(self, name) is not None
                if is_given != (kind == self.kind):
                    problem = "is missing" if kind == self.kind else "is given"
                    raise ValueError(
                        f"{name} {problem}; a guard of kind {self.kind} has {', '.join(NEEDED[self.kind])}"
                    )
        return self


GuardName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=40)]

Guards = dict[GuardName, GuardConfig]
