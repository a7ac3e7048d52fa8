"""From a command's arguments to what they name; every misuse is an InputError."""

from pathlib import Path
from typing import Any

from raysweep.errors import InputError


def load(space: str, arguments: list[str]) -> Any:
    """The configuration and space of SPACE under the overrides."""
    from raysweep import space_parser

    document, config = _read(find_space(space), arguments)
    parsed = space_parser.parse(document, config)
    _check_sampler(document, config, parsed)
    return config, parsed


def _read(path: Path, arguments: list[str]) -> Any:
    """The document under the overrides, and the configuration that it gives."""
    from raysweep import config as configuration
    from raysweep.document import Document

    document = Document.read(path)
    for key, value in _overrides(arguments):
        document.override(key, value)
    return document, configuration.parse(document)


def _check_sampler(document: Any, config: Any, space: Any) -> None:
    from raysweep import config as configuration

    if config.sampler in configuration.SAMPLERS:  # Optuna takes its time to import
        return
    from raysweep.proposals import try_out

    try:
        try_out(config.sampler, space, config.objective.proposals)
    except InputError as error:
        raise document.error(("sampler",), str(error)) from None


def load_resumed(folder: Path, space: str | None, arguments: list[str]) -> Any:
    """The configuration, space and state that a run goes on with; without ``space`` its own, with what is overridden."""
    from raysweep import space_parser
    from raysweep.resuming import Resumed, check_changes, check_space

    folder = folder.absolute()
    resumed = Resumed(folder)
    stored, before = _read(folder / "config.yaml", [])
    old_space = space_parser.parse(stored, before)
    document, after = _read(find_space(space) if space else folder / "config.yaml", arguments)
    check_changes(before, after, folder)
    if after.budget.trials < resumed.num_begun:
        reason = f"is {after.budget.trials}, but {resumed.num_begun} have begun; allowed: that many or more"
        raise document.error(("budget", "trials"), reason)
    parsed = space_parser.parse(document, after)
    _check_sampler(document, after, parsed)
    resumed.space_grew = after.space != before.space
    if resumed.space_grew:
        check_space(old_space, parsed, folder)
    return after, parsed, resumed


def find_space(name: str) -> Path:
    """The file of this path, or the shipped space of this name. InputError lists the shipped ones."""
    path = Path(name)
    if not path.name:
        raise InputError(f"{name!r} is no file; SPACE is a YAML file or the name of a shipped space")
    if path.is_file() or path.parent != Path():
        return path
    package = Path(__file__).parent
    for folder in (package / "search_spaces", package.parent / "search_spaces"):  # installed, or a checkout
        if (folder / path.with_suffix(".yaml")).is_file():
            return folder / path.with_suffix(".yaml")
        shipped = sorted(file.stem for file in folder.glob("*.yaml"))
        if shipped:
            raise InputError(f"{name}: no such file, and no shipped space of this name; shipped: {', '.join(shipped)}")
    raise InputError(f"{name}: no such file")


def _overrides(arguments: list[str]) -> list[tuple[str, str]]:
    pairs = []
    waiting = list(arguments)
    while waiting:
        flag = waiting.pop(0)
        if not flag.startswith("--"):
            raise InputError(f"unexpected argument {flag!r}; an override is --KEY VALUE, with the dotted path of a key")
        key, equals, value = flag[2:].partition("=")
        if not equals:
            if not waiting:
                raise InputError(f"{flag} needs a value; an override is --KEY VALUE, with the dotted path of a key")
            value = waiting.pop(0)
        pairs.append((key, value))
    return pairs


def with_trials(arguments: list[str], trials: int | None) -> list[str]:
    """The overrides, with what ``--trials`` is short for."""
    return arguments if trials is None else [*arguments, "--budget.trials", str(trials)]


def natural(flag: str, text: str) -> int:
    """The whole number above 0 that an option was given."""
    if not text.strip().isdigit() or int(text) < 1:
        raise InputError(f"{flag}: {text!r} is no whole number above 0")
    return int(text)


def one_of(flag: str, value: str, allowed: tuple[str, ...]) -> None:
    """InputError unless the option's value is an allowed one."""
    if value not in allowed:
        raise InputError(f"{flag} is {value!r}; allowed: {', '.join(allowed)}")


def where_of(arguments: list[str]) -> dict[str, str]:
    """The values of columns that ``--where COLUMN=VALUE`` asks for."""
    wanted: dict[str, str] = {}
    for text in arguments:
        column, equals, value = text.partition("=")
        if not (column and equals):
            raise InputError(f"--where is {text!r}; it is COLUMN=VALUE")
        wanted[column] = value
    return wanted
