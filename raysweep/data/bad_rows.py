"""Rows that are not labeled sentences, such as rows with empty text: counted, then left out or reported as errors."""

from dataclasses import dataclass, field

from raysweep.errors import InputError

MAX_SHOWN = 5  # row numbers in a message


@dataclass
class BadRows:
    """The bad rows of one file. With ``is_dropped``, they are left out instead of being an error.

    ``rows`` are the numbers of the first few, and ``first`` is the message for the first one.
    """

    is_dropped: bool = False
    count: int = 0
    rows: list[int] = field(default_factory=list)
    first: str = ""

    def add(self, row: int, error: InputError) -> None:
        self.first = self.first or str(error)
        self.count += 1
        if len(self.rows) < MAX_SHOWN:
            self.rows.append(row)

    def check(self) -> None:
        """Raise InputError if there are bad rows and they are not dropped; the message states how many."""
        if self.is_dropped or not self.count:
            return
        if self.count == 1:
            raise InputError(f"{self.first}; data.on_bad_row: drop leaves this row out")
        raise InputError(
            f"{self.first}; {shown(self.count, self.rows)} are bad; data.on_bad_row: drop leaves them out"
        )


def shown(count: int, rows: list[int]) -> str:
    """Return the number of bad rows and the first few of them, such as ``3 rows (1, 4, 7)``."""
    numbers = ", ".join(map(str, rows))
    more = ", ..." if count > len(rows) else ""
    plural = "s" if count > 1 else ""
    return f"{count:,} row{plural} ({numbers}{more})"
