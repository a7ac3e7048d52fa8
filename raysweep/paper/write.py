"""Output of tables and their figures into a folder, each file atomically."""

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from raysweep.errors import InputError
from raysweep.paper import by_examples, by_k, by_margin, by_rung, figures, markup, z_tests
from raysweep.paper.file_source import recordings_of_frame
from raysweep.paper.recording import Recording, joined, selected
from raysweep.paper.run_source import recording_of_run
from raysweep.paper.table import NoTableError, Table
from raysweep.replay import recording_files
from raysweep.results.types import ScoredSplit
from raysweep.storage.folder import Folder

Files = dict[str, bytes]  # contents by file name

_FORMATS: Mapping[str, Callable[[Table], str]] = {
    ".md": markup.markdown,
    ".tex": markup.latex,
    ".csv": markup.csv_text,
}

_SUFFIXES = (*_FORMATS, ".png")


@dataclass(frozen=True)
class Written:
    """The written files by table, and the reasons for leaving out other tables."""

    files: Mapping[str, Sequence[Path]]
    left_out: Mapping[str, str] = field(default_factory=dict)


def write_tables(
    sources: Sequence[Folder | Path],
    to: Path,
    where: Mapping[str, str] | None = None,
    split: ScoredSplit | None = None,
    z_test: str | None = None,
) -> Written:
    """Write every table that runs and recorded tables support into a folder, replacing earlier ones.

    A path is a recorded table, or a file ``by_k.csv`` written by :func:`write_by_k`. ``where`` filters the recordings
    by values of ``model`` and of parameters. ``z_test`` is the row that others are tested against. Files of tables that
    are left out are removed, so that all tables of recordings in the folder are from the same call.

    Raises:
        InputError: Before anything is written, if a source cannot be read or no table is possible.
    """
    check_writable(to)
    recordings, rows = _read(sources)
    files: dict[str, Files] = {}
    left_out: dict[str, str] = {}
    if z_test is not None and not recordings:
        raise InputError(
            "--z-test needs a run or a recorded table; scores by k do not say of how many queries they are"
        )
    if recordings:
        tables = {**_TABLES, z_tests.NAME: _z_test_files(z_test)} if z_test is not None else _TABLES
        files, left_out = _of_recordings(selected(joined(recordings), where or {}), split, tables)
        if not files and not rows:
            raise InputError(f"no table can be made: {'; '.join(dict.fromkeys(left_out.values()))}")
    if rows:
        files["by_k"] = _by_k_files(by_k.ByK.of(rows))
    _check_not_read(sources, to, [*files, *left_out])
    return _write(to, files, left_out, [*left_out, *({z_tests.NAME} - set(files) if recordings else ())])


def write_by_k(found: by_k.ByK, to: Path) -> Written:
    """Write encoders' scores by k into a folder, replacing earlier ones: Markdown, LaTeX, CSV and a figure.

    Raises:
        InputError: If the folder is not writable.
    """
    return _write(to, {"by_k": _by_k_files(found)}, {}, ())


def check_writable(to: Path) -> None:
    """Raise InputError if tables cannot be written to the folder, without creating it."""
    nearest = next(folder for folder in (to, *to.absolute().parents) if folder.exists())
    if not nearest.is_dir():
        raise InputError(f"{to}: cannot write the tables; {nearest} is a file, not a folder")
    if not os.access(nearest, os.W_OK):
        raise InputError(f"{to}: cannot write the tables; {nearest} must be writable")


def _read(sources: Iterable[Folder | Path]) -> tuple[list[Recording], list[by_k.ScoresAtK]]:
    recordings: list[Recording] = []
    rows: list[by_k.ScoresAtK] = []
    for source in sources:
        if not isinstance(source, Path):
            recordings.append(recording_of_run(source))
            continue
        frame = recording_files.read_frame(source)
        if by_k.is_by_k(frame):
            rows += by_k.rows_of(frame, source)
        else:
            recordings += recordings_of_frame(frame, source)
    return recordings, rows


def _of_recordings(
    recordings: Sequence[Recording], split: ScoredSplit | None, tables: "Mapping[str, _Maker]"
) -> tuple[dict[str, Files], dict[str, str]]:
    """Return the files of each possible table, and the reasons for leaving out the others."""
    files: dict[str, Files] = {}
    left_out: dict[str, str] = {}
    for name, make in tables.items():
        try:
            files[name] = make(recordings, split)
        except NoTableError as reason:
            left_out[name] = str(reason)
    return files, left_out


def _polarity_files(recordings: Sequence[Recording], split: ScoredSplit | None) -> Files:
    return _table_files(by_margin.by_margin(recordings, "polarity", split))


def _similarity_files(recordings: Sequence[Recording], split: ScoredSplit | None) -> Files:
    return _table_files(by_margin.by_margin(recordings, "similarity", split))


def _by_examples_files(recordings: Sequence[Recording], split: ScoredSplit | None) -> Files:
    found = by_examples.by_examples(recordings, split)
    return {**_table_files(by_examples.table(found)), "by_examples.png": figures.by_examples_figure(found)}


def _by_rung_files(recordings: Sequence[Recording], split: ScoredSplit | None) -> Files:
    found = by_rung.by_rung(recordings, split)
    return {**_table_files(by_rung.table(found)), "by_rung.png": figures.by_rung_figure(found)}


def _by_k_files(found: by_k.ByK) -> Files:
    return {**_table_files(by_k.table(found)), "by_k.png": figures.by_k_figure(found)}


def _z_test_files(against: str) -> "_Maker":
    """Return the function that creates the files of the tests against one row."""
    return lambda recordings, split: _table_files(z_tests.table(recordings, against, split))


_Maker = Callable[[Sequence[Recording], ScoredSplit | None], Files]

_TABLES: Mapping[str, _Maker] = {
    "by_margin_polarity": _polarity_files,
    "by_margin_similarity": _similarity_files,
    "by_examples": _by_examples_files,
    "by_rung": _by_rung_files,
}
"""Functions that create the files of a table, by table name. Each raises NoTableError."""


def _table_files(table: Table) -> Files:
    return {f"{table.name}{suffix}": form(table).encode() for suffix, form in _FORMATS.items()}


def _check_not_read(sources: Iterable[Folder | Path], to: Path, tables: Iterable[str]) -> None:
    """Raise InputError if a source file would be replaced or removed."""
    read = {source.resolve() for source in sources if isinstance(source, Path)}
    for table in tables:
        for suffix in _SUFFIXES:
            file = to / f"{table}{suffix}"
            if file.resolve() in read:
                raise InputError(f"{file}: is read, and would be replaced; choose another folder")


def _write(to: Path, files: Mapping[str, Files], left_out: Mapping[str, str], gone: Iterable[str]) -> Written:
    """Write all files to a temporary folder, move them into place, and remove those of the ``gone`` tables."""
    contents = {name: content for of_table in files.values() for name, content in of_table.items()}
    try:
        to.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=to) as unfinished:
            for name, content in contents.items():
                (Path(unfinished) / name).write_bytes(content)
            for name in contents:
                (Path(unfinished) / name).replace(to / name)
        for table in gone:
            for suffix in _SUFFIXES:
                (to / f"{table}{suffix}").unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{to}: cannot write the tables ({error.strerror}); the folder must be writable") from None
    return Written({table: [to / name for name in of_table] for table, of_table in files.items()}, left_out)
