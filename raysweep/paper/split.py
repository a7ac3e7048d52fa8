"""The split of a table, and the caption's text on the split and on retrieval."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from raysweep.paper.recording import Recording, SplitScores
from raysweep.paper.table import NoTableError
from raysweep.results.types import ScoredSplit


@dataclass(frozen=True)
class Choice:
    """A table's split, and the sentence of its caption that names it."""

    split: ScoredSplit
    caption: str


def choose(recordings: Sequence[Recording], shown: Sequence[SplitScores], wanted: ScoredSplit | None) -> Choice:
    """Return the split of a table of these points: ``wanted``, or else test if all have it, or dev.

    Raises:
        NoTableError: If no point has scores on it.
    """
    num_on_test = sum("test" in scores for scores in shown)
    split: ScoredSplit = wanted or ("test" if num_on_test == len(shown) else "dev")
    num_shown = sum(split in scores for scores in shown)
    if not num_shown:
        reasons = [f"; {each.why_no_test} in {each.origin}" for each in recordings if each.why_no_test]
        raise NoTableError(f"nothing that it would show has scores on {split}{''.join(reasons)}")
    measured = [_split_text(recordings, split)]
    if num_shown < len(shown):
        measured.append(f"which {num_shown} of {len(shown)} points have")
    measured += _retrievals(recordings)
    return Choice(split, f"Scores {', '.join(measured)}.")


def _retrievals(recordings: Sequence[Recording]) -> Iterator[str]:
    """Yield the retrieval settings, with model names if they differ; recorded tables may lack them."""
    models: dict[str, list[str]] = {}
    for recording in recordings:
        models.setdefault(recording.retrieval, []).append(recording.model)
    not_said = models.pop("", [])
    for retrieval, names in models.items():
        is_of_all = len(models) == 1 and not not_said
        yield retrieval if is_of_all else f"{retrieval} for {', '.join(dict.fromkeys(names))}"
    if models and not_said:
        yield f"which is not recorded for {', '.join(dict.fromkeys(not_said))}"


def _split_text(recordings: Sequence[Recording], split: ScoredSplit) -> str:
    """Return the name of the split, or "as recorded" for recorded tables without a split."""
    knowing = {recording.names_split for recording in recordings}
    texts = {True: f"on {split}", False: "as recorded"}
    return " or ".join(text for is_known, text in texts.items() if is_known in knowing)


def endings_text(recordings: Sequence[Recording]) -> str:
    """Return a caption's note on configurations with fewer rungs than others of their model, "" without any."""
    num_short = num_all = 0
    for recording in recordings:
        last_rungs = [configuration.last_rung for configuration in recording.configurations]
        num_short += sum(last < max(last_rungs) for last in last_rungs)
        num_all += len(last_rungs)
    if not num_short:
        return ""
    return f" {num_short} of {num_all} configurations ended earlier than others of their model."
