"""Pages that are made from the code when the site is built, as a hook of mkdocs.

The reference of a sweep's file comes from the pydantic models, that of the commands from the command line itself, that of
the Python API from the names in ``raysweep.__all__``, the shipped spaces from their files. Some files of the repository
become pages as they are.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
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
from raysweep.config.losses import LOSSES
from raysweep.config.sweep import SweepConfig
from raysweep.config.trial import TrialConfig

ROOT = Path(__file__).parents[1]
Schema = Mapping[str, Any]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages (an event of mkdocs)."""
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
    """Show the docstrings' references, such as ``:class:`Point` ``, as code (an event of mkdocs)."""
    return re.sub(r":(?:class|func|meth|mod|attr|data):(?=<code)", "", html)


def repository_page(path: str) -> str:
    """A Markdown file of the repository. Links into ``docs`` become links within the site."""
    return (ROOT / path).read_text(encoding="utf-8").replace("](docs/", "](")


# The sweep's file


def configuration_page() -> str:
    """Every key of a sweep's file: its type and range, its default, what it means."""
    schema = SweepConfig.model_json_schema()
    parts = [
        "# A sweep's file",
        "Every key of the YAML file. Each can be overridden on the command line by its dotted path, such as "
        "`--budget.trials 40`. This page is generated from the models that check the file. "
        "[A search space of your own](../guides/custom-space.md) shows how the parts fit together.",
        "## Top level",
        key_table(schema, ""),
    ]
    for title, model in sections(schema):
        parts += [f"## {title}", code_spans(model.get("description", "")), key_table(model, title.split(",")[0])]
    parts += [
        "## space",
        "What a trial may be told. Each parameter is a fixed value, a range `{low, high, log}` or `{choices: ...}`. "
        "`loss` and `learning_rate` are required.",
        key_table(TrialConfig.model_json_schema(), ""),
        "### Losses",
        "A parameter of a loss is given under that loss, and the other losses do not have it.",
        losses_table(),
        "### Freezing levels",
        ", ".join(f"`{level}`" if " " not in level else f"`{level.split()[0]}` with n ≥ 1" for level in FORMS)
        + ". [Losses, optimizers, freezing](../guides/training.md#freezing) says what each one freezes.",
    ]
    return "\n\n".join(parts)


def sections(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Each model that the schema refers to, once, under the paths of all keys that hold one."""
    paths: dict[str, list[str]] = {}
    collect_paths(schema, schema["$defs"], "", paths)
    for name, found in paths.items():
        yield ", ".join(found), schema["$defs"][name]


def collect_paths(model: Schema, definitions: Schema, prefix: str, paths: dict[str, list[str]]) -> None:
    for key, value in model["properties"].items():
        if name := referred_model(value):
            paths.setdefault(name, []).append(prefix + key)
            collect_paths(definitions[name], definitions, f"{prefix}{key}.", paths)


def referred_model(value: Schema) -> str | None:
    """The name of the model that a key holds, None where it holds a plain value."""
    by_name = value.get("patternProperties", {})  # of a mapping of names to models
    options = [value, *value.get("anyOf", []), *by_name.values()]
    references = (option["$ref"] for option in options if "$ref" in option)
    return next((reference.rpartition("/")[2] for reference in references), None)


def key_table(model: Schema, prefix: str) -> str:
    """A table of one model's keys; a key that holds another model links to that model's table."""
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    required = model.get("required", [])
    for key, value in model["properties"].items():
        default = "required" if key in required else shown_default(value.get("default"))
        meaning = value.get("description", "")
        if referred_model(value):
            path = f"{prefix}.{key}" if prefix else key
            title, held = next(
                each for each in sections(SweepConfig.model_json_schema()) if path in each[0].split(", ")
            )
            kind = f"[keys below](#{slugify(title, '-')})"
            meaning = meaning or held["description"]
            is_optional = any(option.get("type") == "null" for option in value.get("anyOf", []))
            default = default if key in required or is_optional else ""
        else:
            kind = shown_type(value)
        rows.append(f"| `{key}` | {kind} | {default} | {code_spans(meaning)} |")
    return "\n".join(rows)


def shown_type(value: Schema) -> str:
    if "anyOf" in value:
        return " or ".join(shown_type(option) for option in value["anyOf"] if option.get("type") != "null")
    if "enum" in value:
        return ", ".join(f"`{one}`" for one in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    if value["type"] == "array":
        return f"list of {shown_type(value['items'])}"
    if value["type"] == "object":
        inner = value.get("additionalProperties")
        return f"mapping of names to {shown_type(inner)}" if isinstance(inner, dict) else "mapping"
    names = {"string": "text", "boolean": "`true` or `false`", "integer": "whole number", "number": "number"}
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign}\N{NO-BREAK SPACE}{value[key]}" for key, sign in signs.items() if key in value]
    return " ".join([names[value["type"]], ", ".join(limits)]).strip()


def shown_default(default: Any) -> str:
    if default is None:
        return "not given"
    if default in ("", [], {}):
        return {str: "empty text", list: "empty list", dict: "empty"}[type(default)]
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def code_spans(text: str) -> str:
    """Docstrings mark code with two backticks or refer to modules; in Markdown one backtick does."""
    return re.sub(r":\w+:(?=`)", "", text).replace("``", "`").replace("|", "\\|")


def losses_table() -> str:
    rows = ["| `loss` | examples | parameters |", "|---|---|---|"]
    for name, loss in LOSSES.items():
        parameters = (
            f"`{key}`: {parameter.allowed}; default {parameter.default}" for key, parameter in loss.parameters.items()
        )
        rows.append(f"| `{name}` | {loss.example_kind.replace('_', ' ')} | {'; '.join(parameters)} |")
    return "\n".join(rows)


# Shipped spaces


def spaces_page() -> str:
    """The shipped spaces, each as its file stands."""
    parts = [
        "# Shipped spaces",
        "`raysweep run NAME` takes any of these, `raysweep validate NAME` shows what it searches. Each is one YAML file in "
        "`search_spaces/`; [a sweep's file](configuration.md) lists the keys and the defaults of what is not given.",
    ]
    for path in sorted((ROOT / "search_spaces").glob("*.yaml")):
        parts.append(f"## {path.stem}\n\n```yaml\n{path.read_text(encoding='utf-8').strip()}\n```")
    return "\n\n".join(parts)


# The command line


def commands_page() -> str:
    """Every command with its arguments and options."""
    group: Any = typer.main.get_command(app)
    parts = [
        "# Command line",
        group.help,
        "Where a command takes `--KEY VALUE`, any key of [a sweep's file](configuration.md) can be overridden by its dotted "
        "path: `--budget.trials 40`, `--data.train reviews.csv`, "
        "`--space.learning_rate '{low: 1e-6, high: 1e-4, log: true}'`.",
        "`raysweep --version` prints the version, and `raysweep COMMAND --help` what this page says of a command. Bad input "
        "ends with one message and exit code 2, Ctrl-C with 130; [Exit codes](../guides/resume.md#exit-codes) has those of "
        "`raysweep run`.",
    ]
    for name, command in group.commands.items():
        arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
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


def shown_argument(argument: Any) -> str:
    return str(argument.metavar) if argument.required else f"[{argument.metavar}]"


def parameter_row(parameter: Any) -> str:
    is_argument = parameter.param_type_name == "argument"
    names = parameter.metavar if is_argument else " ".join([parameter.opts[0], parameter.metavar or ""]).strip()
    default = "required" if parameter.required else "" if parameter.default in (None, "") else f"`{parameter.default}`"
    return f"| `{names}` | {code_spans(parameter.help or '')} | {default} |"


# Python


def python_page() -> str:
    """The public API: whatever ``raysweep.__all__`` names, with signatures and docstrings; functions first."""
    names = [name for name in raysweep.__all__ if name != "__version__"]
    parts = [
        "# Python",
        "`import raysweep` gives these names and loads what each one needs when it is called, so the import itself is "
        "light. [Python and notebooks](../guides/python.md) shows them at work. All else in the package is implementation "
        "and may change.",
    ]
    for name in sorted(names, key=in_reading_order):
        where = getattr(raysweep, name).__module__
        parts.append(f"::: {where}.{name}\n    options:\n      heading: raysweep.{name}\n      toc_label: {name}")
    return "\n\n".join(parts)


def in_reading_order(name: str) -> tuple[bool, str, int]:
    """Functions before classes, each as they stand in their module."""
    found = getattr(raysweep, name)
    return inspect.isclass(found), found.__module__, inspect.getsourcelines(found)[1]
