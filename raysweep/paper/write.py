"""Write layouts and their figures to a folder, replacing each file atomically."""

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from raysweep.errors import InputError
from raysweep.paper import layouts
from raysweep.paper.layout import Layout, NoLayoutError, to_csv, to_latex, to_markdown
from raysweep.paper.model_scores import ModelScores, join_runs, select
from raysweep.paper.sources import is_by_k, read_by_k, read_rows, read_run
from raysweep.replay.recording_files import read_frame
from raysweep.results.types import ScoredSplit
from raysweep.storage.folder import Folder

if TYPE_CHECKING:
    import pandas as pd

_FORMATS = {".md": to_markdown, ".tex": to_latex, ".csv": to_csv}
_SUFFIXES = (*_FORMATS, ".png")


@dataclass(frozen=True)
class Written:
    """The written files by layout, and the reasons for leaving out other layouts."""

    files: Mapping[str, Sequence[Path]]
    left_out: Mapping[str, str] = field(default_factory=dict)


def write_layouts(
    sources: Sequence[Folder | Path],
    to: Path,
    where: Mapping[str, str] | None = None,
    split: ScoredSplit | None = None,
    z_test: str | None = None,
) -> Written:
    """Write to a folder every layout that the runs and files support, replacing earlier ones.

    A path is a recording, a file with published scores, or a ``by_k.csv`` file written by :func:`write_by_k`. ``where``
    filters by values of ``model``, ``dataset`` and parameters. ``z_test`` is the row that others are tested against.
    Files of layouts that are left out are removed, so that all layouts in the folder except ``by_k`` are from one call.

    Raises:
        InputError: Before anything is written, if a source cannot be read or no layout is possible.
    """
    import pandas as pd

    check_writable(to)
    models, scores_by_k = _read(sources)
    made: list[Layout] = []
    left_out: dict[str, str] = {}
    removed: list[str] = []
    if models:
        made, left_out = _make_layouts(select(join_runs(models), where or {}), split, z_test)
        if not made and not scores_by_k:
            raise InputError(f"no layout is possible: {'; '.join(dict.fromkeys(left_out.values()))}")
        removed = [*left_out, *(() if z_test else ("z_tests",))]
    elif z_test is not None:
        raise InputError("--z-test needs a run or a recording; scores by k have no number of queries")
    if scores_by_k:
        made.append(layouts.by_k(pd.concat(scores_by_k)))
    read = {source.resolve() for source in sources if isinstance(source, Path)}
    for name in (*(layout.name for layout in made), *left_out):
        for suffix in _SUFFIXES:
            file = to / f"{name}{suffix}"
            if file.resolve() in read:
                raise InputError(f"{file}: is a source and would be replaced; choose another folder")
    return Written(_write(to, made, removed), left_out)


def _read(sources: Iterable[Folder | Path]) -> "tuple[list[ModelScores], list[pd.DataFrame]]":
    models: list[ModelScores] = []
    scores_by_k: list[pd.DataFrame] = []
    for source in sources:
        if not isinstance(source, Path):
            models.append(read_run(source))
            continue
        frame = read_frame(source)
        if is_by_k(frame):
            scores_by_k.append(read_by_k(frame, source))
        else:
            models += read_rows(frame, source)
    return models, scores_by_k


def _make_layouts(
    models: Sequence[ModelScores], split: ScoredSplit | None, z_test: str | None
) -> tuple[list[Layout], dict[str, str]]:
    """Return the possible layouts, and the reasons for leaving out the others."""
    makers: dict[str, Callable[[], Layout]] = {
        "by_margin_polarity": lambda: layouts.by_margin(models, "polarity", split),
        "by_margin_similarity": lambda: layouts.by_margin(models, "similarity", split),
        "by_examples": lambda: layouts.by_examples(models, split),
        "by_rung": lambda: layouts.by_rung(models, split),
    }
    if z_test is not None:
        makers["z_tests"] = lambda: layouts.z_tests(models, z_test, split)
    made = []
    left_out = {}
    for name, make in makers.items():
        try:
            made.append(make())
        except NoLayoutError as reason:
            left_out[name] = str(reason)
    return made, left_out


def write_by_k(scores: "pd.DataFrame", measured: str, to: Path) -> None:
    """Write scores by k, see :func:`layouts.by_k`, into a folder: Markdown, LaTeX, CSV and a figure.

    Raises:
        InputError: If the folder is not writable.
    """
    _write(to, [layouts.by_k(scores, measured)], ())


def check_writable(to: Path) -> None:
    """Raise InputError if layouts cannot be written to the folder, without creating it."""
    nearest = next(folder for folder in (to, *to.absolute().parents) if folder.exists())
    if not nearest.is_dir():
        raise InputError(f"{to}: cannot be written; {nearest} is a file, not a folder")
    if not os.access(nearest, os.W_OK):
        raise InputError(f"{to}: cannot be written; {nearest} must be writable")


def _write(to: Path, made: Sequence[Layout], removed: Iterable[str]) -> dict[str, list[Path]]:
    """Write all files to a temporary folder, move them into place, and remove those of the ``removed`` layouts."""
    contents: dict[str, dict[str, bytes]] = {}  # keyed by layout, then file name
    for layout in made:
        files = {f"{layout.name}{suffix}": form(layout).encode() for suffix, form in _FORMATS.items()}
        if layout.draw is not None:
            files[f"{layout.name}.png"] = layout.draw()
        contents[layout.name] = files
    try:
        to.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=to) as unfinished:
            for files in contents.values():
                for name, content in files.items():
                    (Path(unfinished) / name).write_bytes(content)
            for files in contents.values():
                for name in files:
                    (Path(unfinished) / name).replace(to / name)
        for layout_name in removed:
            for suffix in _SUFFIXES:
                (to / f"{layout_name}{suffix}").unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{to}: cannot be written ({error.strerror}); the folder must be writable") from None
    return {name: [to / file for file in files] for name, files in contents.items()}
