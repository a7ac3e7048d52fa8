"""Settings for watched data, on which trials are measured but not tuned."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from raysweep.config.sources import ColumnsConfig, DataKind, ThresholdsConfig, absolute_source
from raysweep.config.strict import StrictModel

At = Literal["last", "rung"]
"""The rungs at which trials are measured on watched data: the last rung, or every rung."""

MAX_QUERIES = 1000
"""Default maximum number of queries per watched source."""


class WatchedSource(StrictModel):
    """A source of retrieval data, pairs, scored pairs or labeled sentences, with settings for reading it."""

    source: Annotated[str, AfterValidator(absolute_source)] = Field(
        description="path or URI of a file, a folder or a glob; hub:NAME[:SPLIT]; or demo"
    )
    kind: DataKind | None = Field(
        None, description="kind of data; inferred from the columns if not given"
    )
    columns: ColumnsConfig = Field(
        ColumnsConfig(), description="columns of retrieval data and pairs"
    )
    positive_label: str | None = Field(
        None,
        description="label of positive pairs; 1, true or entailment if not given; all other labels are negative",
    )
    thresholds: ThresholdsConfig = Field(
        ThresholdsConfig(), description="score thresholds of positive and negative pairs"
    )
    text_column: str = Field("text", description="text column of labeled sentences")
    label_column: str = Field("label", description="label column of pairs or sentences")
    max_queries: int = Field(
        MAX_QUERIES,
        ge=1,
        description="maximum number of queries; if there are more, a seeded sample is measured",
    )


def _as_mapping(value: Any) -> Any:
    if isinstance(value, str):
        return {"source": value}
    if not isinstance(value, dict | WatchedSource):
        keys = ", ".join(WatchedSource.model_fields)
        raise ValueError(f"is {value!r}; allowed: a source, or a mapping of {keys}")
    return value


Watched = Annotated[WatchedSource, BeforeValidator(_as_mapping)]


class WatchConfig(StrictModel):
    """Data on which trials are measured but not tuned, and the rungs at which they are measured."""

    sources: Annotated[list[Watched], Field(min_length=1)] = Field(
        description="data on which trials are measured but not tuned, as a list of sources or mappings"
    )
    target: Watched | None = Field(
        None,
        description="data on which results should improve, which determines the adiabatic range; dev's labeled "
        "sentences if not given",
    )
    at: At = Field(
        "last",
        description="last: measure each trial at its last rung; rung: at each rung, which the `watched` score requires",
    )

    @field_validator("sources")
    @classmethod
    def _check_sources(cls, sources: list[WatchedSource]) -> list[WatchedSource]:
        names = [source.source for source in sources]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"contains {name!r} more than once; required: different sources")
        return sources


def _list_or_mapping(value: Any) -> Any:
    if isinstance(value, str):
        return {"sources": [value]}
    return {"sources": value} if isinstance(value, list) else value


Watch = Annotated[WatchConfig, BeforeValidator(_list_or_mapping)]
