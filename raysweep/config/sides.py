"""The two sides of retrieval, queries and documents, and pairs of values for them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Side = Literal["query", "document"]
"""A sentence's side in retrieval. An example's anchor is a query; retrieved sentences are documents."""

Tower = Literal["both", "query", "separate"]
"""The encoders that a trial tunes: one for ``both`` sides; only the ``query`` encoder, while documents keep the
reference's embeddings; or two ``separate`` encoders that start out identical."""

T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


@dataclass(frozen=True)
class Sides(Generic[T_co]):
    """A value for queries and a value for documents, which are the same object if they do not differ."""

    query: T_co
    document: T_co

    @staticmethod
    def same(value: U) -> "Sides[U]":
        """Return sides that share a value."""
        return Sides(value, value)

    @staticmethod
    def merge(query: U, document: U) -> "Sides[U]":
        """Return sides that share one object if the values are equal."""
        return Sides(document if query == document else query, document)

    @property
    def is_shared(self) -> bool:
        """Return whether both sides are the same object."""
        return self.query is self.document

    @property
    def distinct(self) -> tuple[T_co, ...]:
        """Return the distinct objects, starting with the one for documents."""
        return (self.document,) if self.is_shared else (self.document, self.query)

    def of(self, side: Side) -> T_co:
        """Return the value for a side."""
        return self.query if side == "query" else self.document

    def map(self, function: Callable[[T_co], U]) -> "Sides[U]":
        """Return the function's results for both values; for a shared value, call the function once and share the result."""
        document = function(self.document)
        return Sides(document if self.is_shared else function(self.query), document)

    def zip(self, other: "Sides[U]") -> "Sides[tuple[T_co, U]]":
        """Return the pair of values on each side; if both operands are shared, the sides share one pair."""
        documents = (self.document, other.document)
        is_shared = self.is_shared and other.is_shared
        return Sides(documents if is_shared else (self.query, other.query), documents)
