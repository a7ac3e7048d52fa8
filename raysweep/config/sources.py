"""Settings for data sources."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from raysweep.config.guards import absolute_file
from raysweep.config.strict import StrictModel
from raysweep.storage import location


def absolute_source(source: str) -> str:
    """Make a source's path absolute, because workers have different working directories."""
    if source == "demo" or source.startswith("hub:"):
        return location.reject_null(source)
    return absolute_file(source)


def _source_or_list(value: Any) -> Any:
    """Check the type before pydantic does, because pydantic would report one error per allowed type."""
    entries = value if isinstance(value, list) else [value]
    for entry in entries:
        if not isinstance(entry, str):
            raise ValueError(f"is {entry!r}; allowed: a source or a list of sources, each a string")
    if not entries or "" in entries:
        raise ValueError(
            "is empty or contains an empty entry; allowed: a source or a list of sources"
        )
    return value


def _absolute_sources(sources: str | list[str]) -> str | list[str]:
    if isinstance(sources, str):
        return absolute_source(sources)
    absolute = [absolute_source(source) for source in sources]
    for source in absolute:
        if absolute.count(source) > 1:
            raise ValueError(f"contains {source!r} more than once")
    return absolute


Sources = Annotated[
    str | list[str], BeforeValidator(_source_or_list), AfterValidator(_absolute_sources)
]


DataKind = Literal["labeled", "retrieval", "pairs", "scored_pairs"]


def _two_columns(value: list[str] | None) -> list[str] | None:
    if value is not None and (len(value) != 2 or value[0] == value[1]):
        raise ValueError(f"is {value}; required: two different columns")
    return value


class TaskConfig(StrictModel):
    """A labeled data set in a sequence. Omitted column names default to those of `data`."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="name of the data set in reports"
    )
    train: Sources = Field(
        description="training sentences; also the pool that the data set's queries search"
    )
    dev: Sources | None = Field(
        None,
        description="sentences used for selection in the search; split off from train if not given",
    )
    test: Sources | None = Field(
        None,
        description="sentences scored once, for the report; set for all data sets or for none",
    )
    subset: str | None = Field(None, description="configuration name of a hub dataset")
    text_column: str | None = Field(
        None, description="column with the sentences; data.text_column if not given"
    )
    label_column: str | None = Field(
        None, description="column with the labels; data.label_column if not given"
    )


class ColumnsConfig(StrictModel):
    """Columns of retrieval data and pair files."""

    query: str = Field("query", description="query column of retrieval data")
    positives: str = Field(
        "positives", description="column with a query's positive texts: a list, or one text"
    )
    negatives: str = Field(
        "negatives", description="column with a query's negative texts: a list, or one text"
    )
    pair: Annotated[list[str] | None, AfterValidator(_two_columns)] = Field(
        None,
        description="the two sentence columns of pairs; sentence1 and sentence2, or text1 and text2, if not given",
    )
    score: str = Field("score", description="score column of pairs")
    groups: list[str] = Field(
        [],
        description="columns whose values define groups, such as two languages; only pairs in the same group are compared",
    )


class ThresholdsConfig(StrictModel):
    """Scored pairs with a score of at least `positive` are positive; those with at most `negative` are negative."""

    positive: float = Field(4.0, description="lowest score of positive pairs")
    negative: float = Field(2.0, description="highest score of negative pairs")

    @model_validator(mode="after")
    def _check_order(self) -> "ThresholdsConfig":
        if not self.negative < self.positive:
            raise ValueError(
                f"negative is {self.negative:g}; allowed: below positive ({self.positive:g})"
            )
        return self
