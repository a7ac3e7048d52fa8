"""The two sides of retrieval: queries and documents."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Side = Literal["query", "document"]
"""A sentence's side in retrieval."""

Tower = Literal["both", "query", "separate"]
"""The encoders that a trial tunes.

- ``both``: one encoder for both sides.
- ``query``: only the query encoder; documents keep the reference encoder's embeddings.
- ``separate``: two encoders that start out identical.
"""

T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


@dataclass(frozen=True)
class Sides(Generic[T_co]):
    """A value for queries and a value for documents, which may be the same object."""

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
        """Apply a function to both values, or only once if they are shared."""
        document = function(self.document)
        return Sides(document if self.is_shared else function(self.query), document)

    def zip(self, other: "Sides[U]") -> "Sides[tuple[T_co, U]]":
        """Pair the values of both operands on each side; the sides share one pair if both operands are shared."""
        documents = (self.document, other.document)
        is_shared = self.is_shared and other.is_shared
        return Sides(documents if is_shared else (self.query, other.query), documents)
