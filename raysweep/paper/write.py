"""Write layouts and their figures to a folder, replacing each file atomically."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from raysweep.errors import InputError
from raysweep.paper import layouts
from raysweep.paper.layout import Layout, NoLayoutError, to_csv, to_latex, to_markdown
from raysweep.paper.model_scores import ModelScores, join_runs, select
from raysweep.paper.sources import is_by_k, read_by_k, read_rows, read_run
from raysweep.replay.recording_files import read_frame
from raysweep.report.write import replace_files
from raysweep.results.types import ScoredSplit
from raysweep.storage.folder import Folder

if TYPE_CHECKING:
    import pandas as pd

_FORMATS = {".md": to_markdown, ".tex": to_latex, ".csv": to_csv}
_SUFFIXES = (*_FORMATS, ".png")


@dataclass(frozen=True)
class Written:
    """The files written for each layout, and the reasons why other layouts were left out."""

    files: Mapping[str, Sequence[Path]]
    left_out: Mapping[str, str]


def write_layouts(
    sources: Sequence[Folder | Path],
    to: Path,
    where: Mapping[str, str] | None = None,
    split: ScoredSplit | None = None,
    z_test: str | None = None,
) -> Written:
    """Write every layout that the sources support to a folder, replacing earlier layouts.

    Earlier files of layouts that are left out are removed.

    Args:
        sources: Runs, and paths of recordings, files of published scores, or ``by_k.csv`` files from :func:`write_by_k`.
        where: Required values of ``model``, ``dataset`` and parameters.
        z_test: Row against which the others are tested.

    Raises:
        InputError: If a source cannot be read or no layout is possible.
    """
    import pandas as pd

    check_writable(to)
    models, scores_by_k = _read(sources)
    possible: list[Layout] = []
    left_out: dict[str, str] = {}
    removed: list[str] = []
    if models:
        selected = select(join_runs(models), where or {})
        possible, left_out = _make_layouts(selected, split, z_test)
        if not possible and not scores_by_k:
            reasons = "; ".join(dict.fromkeys(left_out.values()))
            raise InputError(f"no layout is possible: {reasons}")
        removed = list(left_out)
        if not z_test:
            removed.append("z_tests")
    elif z_test is not None:
        raise InputError(
            "--z-test needs a run or a recording; scores by k do not include the number of queries"
        )
    if scores_by_k:
        possible.append(layouts.by_k(pd.concat(scores_by_k)))
    names = [layout.name for layout in possible]
    changed = [*names, *left_out]
    _check_sources(sources, to, changed)
    files = _write(to, possible, removed)
    return Written(files, left_out)


def _check_sources(sources: Iterable[Folder | Path], to: Path, names: Iterable[str]) -> None:
    """Raise InputError if writing the layouts with these names would overwrite a source."""
    source_files = {source.resolve() for source in sources if isinstance(source, Path)}
    for name in names:
        for suffix in _SUFFIXES:
            file = to / f"{name}{suffix}"
            if file.resolve() in source_files:
                raise InputError(
                    f"{file}: is a source and would be replaced; choose another folder"
                )


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
    """Return the layouts that are possible, and the reasons why the others are left out."""
    makers: dict[str, Callable[[], Layout]] = {
        "by_margin_polarity": lambda: layouts.by_margin(models, "polarity", split),
        "by_margin_similarity": lambda: layouts.by_margin(models, "similarity", split),
        "by_examples": lambda: layouts.by_examples(models, split),
        "by_rung": lambda: layouts.by_rung(models, split),
    }
    if z_test is not None:
        makers["z_tests"] = lambda: layouts.z_tests(models, z_test, split)
    possible = []
    left_out = {}
    for name, make in makers.items():
        try:
            possible.append(make())
        except NoLayoutError as reason:
            left_out[name] = str(reason)
    return possible, left_out


def write_by_k(scores: "pd.DataFrame", measured: str, to: Path) -> None:
    """Write the ``by_k`` layout to a folder as Markdown, LaTeX, CSV and a figure.

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


def _write(
    to: Path, new_layouts: Iterable[Layout], removed: Iterable[str]
) -> dict[str, list[Path]]:
    """Write the new layouts and delete the files of the ``removed`` layouts."""
    contents: dict[str, bytes] = {}
    files: dict[str, list[Path]] = {}
    for layout in new_layouts:
        layout_contents = {}
        for suffix, as_text in _FORMATS.items():
            layout_contents[f"{layout.name}{suffix}"] = as_text(layout).encode()
        if layout.draw is not None:
            layout_contents[f"{layout.name}.png"] = layout.draw()
        contents |= layout_contents
        files[layout.name] = [to / file for file in layout_contents]
    try:
        to.mkdir(parents=True, exist_ok=True)
        replace_files(to, contents)
        for name in removed:
            for suffix in _SUFFIXES:
                (to / f"{name}{suffix}").unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"{to}: cannot be written ({error.strerror}); the folder must be writable"
        ) from None
    return files
