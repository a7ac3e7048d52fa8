"""Embedding widths of the Matryoshka loss (Kusupati et al. 2022, arXiv:2205.13147)."""

from raysweep.errors import InputError

HALVES = "halves"

MIN_HALF = 32  # the smallest width in ``halves``

FORMS = (HALVES, "widths separated by commas, such as 192,96")


def check(text: str) -> None:
    """Raise InputError unless the text is ``halves`` or lists distinct, positive widths."""
    if text == HALVES:
        return
    parts = text.split(",")
    are_widths = all(part.isascii() and part.isdecimal() and int(part) > 0 for part in parts)
    if not are_widths or len(set(map(int, parts))) < len(parts):
        raise InputError(f"matryoshka is {text!r}; allowed: {' or '.join(FORMS)}")


def widths(text: str, full: int) -> tuple[int, ...]:
    """Return the widths in descending order, starting with ``full``, the width of the embeddings.

    ``halves`` halves the width repeatedly while the result is at least MIN_HALF.

    Raises:
        InputError: If a listed width is not below ``full``.
    """
    check(text)
    if text == HALVES:
        result = [full]
        while result[-1] // 2 >= MIN_HALF:
            result.append(result[-1] // 2)
        return tuple(result)
    shorter = sorted(map(int, text.split(",")), reverse=True)
    if shorter[0] >= full:
        raise InputError(
            f"space.matryoshka is {text!r}; allowed: widths below {full}, the width of the embeddings"
        )
    return (full, *shorter)


def check_truncated(width: int, full: int) -> None:
    """Raise InputError unless the truncated width is below the full width."""
    if width >= full:
        raise InputError(
            f"evaluation.points.truncate is {width}; allowed: below {full}, the width of the embeddings"
        )
