"""A MkDocs hook that generates pages from the code when the site is built.

The reference of a sweep's file comes from the pydantic models, the reference of the commands from the command line, the
reference of the Python API from ``raysweep.__all__``, and the shipped spaces from their files. Some files of the
repository become pages unchanged.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from itertools import starmap
from pathlib import Path
from typing import Any

import typer
from markdown.extensions.toc import slugify
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import raysweep
from raysweep.cli.commands import app
from raysweep.config.freezing import FORMS
from raysweep.config.losses import ALL_LOSSES
from raysweep.config.schema import trial_schema
from raysweep.config.sweep import SweepConfig

ROOT = Path(__file__).parents[1]
Schema = Mapping[str, Any]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages (MkDocs event)."""
    pages = {
        "reference/configuration.md": configuration_page(),
        "reference/spaces.md": spaces_page(),
        "reference/commands.md": commands_page(),
        "reference/python.md": python_page(),
        "contributing.md": repository_page("CONTRIBUTING.md"),
        "benchmarks.md": repository_page("benchmarks/README.md"),
        "changelog.md": repository_page("CHANGELOG.md"),
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show the references in docstrings, such as ``:class:`Point` ``, as code (MkDocs event)."""
    return re.sub(r":(?:class|func|meth|mod|attr|data):(?=<code)", "", html)


def repository_page(path: str) -> str:
    """Return a Markdown file of the repository, with links into ``docs`` changed to links within the site."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return text.replace("](../docs/", "](").replace("](docs/", "](")


# The sweep's file


def configuration_page() -> str:
    """Return the page of all keys of a sweep's file, with type, range, default and meaning."""
    schema = SweepConfig.model_json_schema()
    parts = [
        "# The sweep file",
        "This page lists every key of the YAML file and is generated from the models that validate it. "
        "Any key can be overridden on the command line by its dotted path, such as `--budget.trials 40`. "
        "[A search space of your own](../guides/custom-space.md) shows how the parts fit together.",
        "## Top level",
        key_table(schema, ""),
    ]
    for title, model in sections(schema):
        parts += [
            f"## {title}",
            code_spans(model.get("description", "")),
            key_table(model, title.split(",")[0]),
        ]
    parts += [
        "## space",
        "The parameters of a trial. Each is a fixed value, a range `{low, high, log}` or `{choices: ...}`. "
        "`loss` and `learning_rate` are required. [Losses, optimizers, freezing](../guides/training.md) explains them.",
        key_table(trial_schema(), ""),
        "### Losses",
        "Parameters of a loss are nested under it and do not exist for other losses.",
        losses_table(),
        "### Freezing levels",
        ", ".join(
            f"`{level}`" if " " not in level else f"`{level.split()[0]}` with n ≥ 1"
            for level in FORMS
        )
        + ". [Freezing](../guides/training.md#freezing) explains what each level freezes.",
    ]
    return "\n\n".join(parts)


def sections(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield each model of the schema once, with the paths of all keys that hold it."""
    paths: dict[str, list[str]] = {}
    collect_paths(schema, schema["$defs"], "", paths)
    for name, found in paths.items():
        yield ", ".join(found), schema["$defs"][name]


def collect_paths(
    model: Schema, definitions: Schema, prefix: str, paths: dict[str, list[str]]
) -> None:
    for key, value in model["properties"].items():
        if name := referred_model(value):
            paths.setdefault(name, []).append(prefix + key)
            collect_paths(definitions[name], definitions, f"{prefix}{key}.", paths)


def referred_model(value: Schema) -> str | None:
    """Return the name of the model that a key holds, or None for a plain value."""
    by_name = value.get("patternProperties", {})  # of a mapping of names to models
    options = [value, *value.get("anyOf", []), *by_name.values(), value.get("items", {})]
    references = (option["$ref"] for option in options if "$ref" in option)
    return next((reference.rpartition("/")[2] for reference in references), None)


def key_table(model: Schema, prefix: str) -> str:
    """Return the table of a model's keys; a key that holds another model links to its table."""
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    required = model.get("required", [])
    for key, value in model["properties"].items():
        default = "required" if key in required else shown_default(value.get("default"))
        meaning = value.get("description", "")
        if referred_model(value):
            path = f"{prefix}.{key}" if prefix else key
            title, paused = next(
                each
                for each in sections(SweepConfig.model_json_schema())
                if path in each[0].split(", ")
            )
            kind = f"{'list of ' if 'items' in value else ''}[keys below](#{slugify(title, '-')})"
            meaning = meaning or paused["description"]
            is_optional = any(option.get("type") == "null" for option in value.get("anyOf", []))
            default = default if key in required or is_optional else ""
        else:
            kind = shown_type(value)
        rows.append(f"| `{key}` | {kind} | {default} | {code_spans(meaning)} |")
    return "\n".join(rows)


def shown_type(value: Schema) -> str:
    if "anyOf" in value:
        return " or ".join(
            shown_type(option) for option in value["anyOf"] if option.get("type") != "null"
        )
    if "enum" in value:
        return ", ".join(f"`{one}`" for one in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    if value["type"] == "array":
        return f"list of {shown_type(value['items'])}"
    if value["type"] == "object":
        inner = value.get("additionalProperties")
        return f"mapping of names to {shown_type(inner)}" if isinstance(inner, dict) else "mapping"
    names = {
        "string": "text",
        "boolean": "`true` or `false`",
        "integer": "whole number",
        "number": "number",
    }
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [
        f"{sign}\N{NO-BREAK SPACE}{value[key]}" for key, sign in signs.items() if key in value
    ]
    return " ".join([names[value["type"]], ", ".join(limits)]).strip()


def shown_default(default: Any) -> str:
    if default is None:
        return "not given"
    if default in ("", [], {}):
        return {str: "empty text", list: "empty list", dict: "empty"}[type(default)]
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def code_spans(text: str) -> str:
    """Convert the double backticks and cross-references of docstrings to Markdown code spans."""
    return re.sub(r":\w+:(?=`)", "", text).replace("``", "`").replace("|", "\\|")


def losses_table() -> str:
    rows = ["| `loss` | meaning | examples | parameters |", "|---|---|---|---|"]
    for name, loss in ALL_LOSSES.items():
        parameters = (
            f"`{key}`: {parameter.allowed}; default {parameter.default}"
            for key, parameter in loss.parameters.items()
        )
        cells = [
            f"`{name}`",
            loss.description,
            loss.examples.replace("_", " "),
            "<br>".join(parameters),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


# Shipped spaces


def spaces_page() -> str:
    """Return the page of shipped spaces, with the content of each file."""
    parts = [
        "# Shipped spaces",
        "`raysweep run NAME` runs any of these, and `raysweep validate NAME` prints the space it searches. Each is a YAML "
        "file in `search_spaces/`. [The sweep file](configuration.md) lists all keys and the defaults of omitted ones.",
    ]
    for path in sorted((ROOT / "search_spaces").glob("*.yaml")):
        parts.append(f"## {path.stem}\n\n```yaml\n{path.read_text(encoding='utf-8').strip()}\n```")
    return "\n\n".join(parts)


# The command line


def commands_page() -> str:
    """Return the page of all commands, with their arguments and options."""
    group: Any = typer.main.get_command(app)
    parts = [
        "# Command line",
        group.help,
        "If a command accepts `--KEY VALUE`, any key of [a sweep's file](configuration.md) can be overridden by its dotted "
        "path: `--budget.trials 40`, `--data.train reviews.csv`, "
        "`--space.learning_rate '{low: 1e-6, high: 1e-4, log: true}'`.",
        "`raysweep --version` prints the version, and `raysweep COMMAND --help` prints the help of a command. Invalid input "
        "causes one message and exit code 2, and Ctrl-C exit code 130. `raysweep run` has further "
        "[exit codes](../guides/resume.md#exit-codes).",
        "\n".join(
            ["| command | summary |", "|---|---|", *starmap(command_row, group.commands.items())]
        ),
    ]
    for name, command in group.commands.items():
        arguments = [
            parameter for parameter in command.params if parameter.param_type_name == "argument"
        ]
        usage = [f"raysweep {name}", *map(shown_argument, arguments)]
        if len(arguments) < len(command.params):
            usage.append("[OPTIONS]")
        if command.context_settings.get("allow_extra_args"):
            usage.append("[--KEY VALUE ...]")
        parts += [f"## {name}", f"```text\n{' '.join(usage)}\n```", code_spans(command.help or "")]
        if command.params:
            rows = ["| argument or option | meaning | default |", "|---|---|---|"]
            parts.append("\n".join([*rows, *map(parameter_row, command.params)]))
    return "\n\n".join(parts)


def command_row(name: str, command: Any) -> str:
    """Return the row of a command in the summary: a link to its section and the first paragraph of its help."""
    summary = " ".join((command.help or "").partition("\n\n")[0].split())
    return f"| [`{name}`](#{name}) | {code_spans(summary)} |"


def shown_argument(argument: Any) -> str:
    return str(argument.metavar) if argument.required else f"[{argument.metavar}]"


def parameter_row(parameter: Any) -> str:
    is_argument = parameter.param_type_name == "argument"
    names = (
        parameter.metavar
        if is_argument
        else " ".join([parameter.opts[0], parameter.metavar or ""]).strip()
    )
    default = (
        "required"
        if parameter.required
        else ""
        if parameter.default in (None, "")
        else f"`{parameter.default}`"
    )
    return f"| `{names}` | {code_spans(parameter.help or '')} | {default} |"


# Python


def python_page() -> str:
    """Return the page of the public API, the names in ``raysweep.__all__``; functions come first."""
    names = [name for name in raysweep.__all__ if name != "__version__"]
    parts = [
        "# Python",
        "The public API consists of these names in `raysweep`. Importing the package is fast, because each function loads "
        "its dependencies when it is called. [Python and notebooks](../guides/python.md) shows examples. "
        "Everything else in the package is internal and may change.",
    ]
    for name in sorted(names, key=in_reading_order):
        where = getattr(raysweep, name).__module__
        parts.append(
            f"::: {where}.{name}\n    options:\n      heading: raysweep.{name}\n      toc_label: {name}"
        )
    return "\n\n".join(parts)


def in_reading_order(name: str) -> tuple[bool, str, int]:
    """Return a sort key: functions before classes, each in the order of their module."""
    found = getattr(raysweep, name)
    return inspect.isclass(found), found.__module__, inspect.getsourcelines(found)[1]
