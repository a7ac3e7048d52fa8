"""Bad rows, such as rows with empty text, which are either dropped or rejected."""

from dataclasses import dataclass, field

from raysweep.errors import InputError
from raysweep.output import counted

MAX_SHOWN = 5  # maximum number of row numbers in a message


@dataclass
class BadRows:
    """The bad rows of one file. They are dropped if ``is_dropped`` is True; otherwise, :meth:`check` rejects them.

    ``rows`` contains the numbers of the first few bad rows, and ``first`` is the error message for the first one.
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
        """Raise InputError if there are bad rows that are not dropped."""
        if self.is_dropped or not self.count:
            return
        if self.count == 1:
            raise InputError(f"{self.first}; to leave this row out, set data.on_bad_row: drop")
        raise InputError(
            f"{self.first}; {shown(self.count, self.rows)} are bad; to leave them out, set data.on_bad_row: drop"
        )


def shown(count: int, rows: list[int]) -> str:
    """Format the number of bad rows and the first row numbers, such as ``3 rows (1, 4, 7)``."""
    numbers = ", ".join(map(str, rows))
    more = ", ..." if count > len(rows) else ""
    return f"{counted(count, 'row')} ({numbers}{more})"
