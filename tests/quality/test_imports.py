"""Who may import whom, read from the source: the table of packages, no circle, and which libraries a package may use."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest

from support.paths import ROOT

SOURCE = ROOT / "raysweep"

# What every package may import: the exception for bad input, lines on a terminal, how a trial stands, files anywhere.
ANYBODY = {"errors", "terminal", "trial_status", "version", "storage"}
EVALUATION = {"config", "data", "encoders", "metrics", "results"}
TRAINING = EVALUATION | {"evaluation"}
REPLAY = {"config", "metrics", "results", "search"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "terminal": set(),
    "trial_status": set(),
    "version": set(),
    "storage": set(),
    "config": set(),
    "metrics": set(),
    "data": {"config"},
    "cluster": {"config"},
    "results": {"config", "metrics"},
    "uncertainty": {"metrics"},
    "search": {"config", "metrics"},
    "encoders": {"config", "data"},
    "replay": REPLAY,
    "control": {"config", "results"},
    "controller": REPLAY | {"control", "data.prepared"},
    "report": {"control", "metrics", "results", "uncertainty"},
    "paper": {"config", "replay", "report", "results", "uncertainty"},
    "trackers": {"config", "metrics", "report", "results"},
    "evaluation": EVALUATION,
    "training": TRAINING,
    "prepare": {"config", "data", "encoders", "metrics", "cluster"},
    "export": {"config", "data", "encoders", "evaluation", "training", "results", "report"},
    "ray_tune": TRAINING | {"training", "search", "controller", "prepare", "cluster", "control", "export", "trackers"},
}
EDGE = {"cli", "api", "__init__", "__main__"}  # the commands and the public API may import everything

TORCH = {"torch", "sentence_transformers", "transformers"}
TORCH_PACKAGES = {"encoders", "evaluation", "training", "export", "ray_tune"}
RAY_PACKAGES = {"cluster", "prepare", "ray_tune"}


def modules() -> list[str]:
    """Every module by its dotted name within the package, such as ``data.sources``."""
    paths = (path.relative_to(SOURCE).with_suffix("") for path in SOURCE.rglob("*.py"))
    return sorted(".".join(path.parts) for path in paths)


def package_of(module: str) -> str:
    return module.split(".")[0]


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Every dotted name that is imported anywhere, inside functions and for type checking too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def imports(module: str) -> tuple[frozenset[str], frozenset[str]]:
    """The other libraries, and the modules of ours, that a module imports."""
    tree = ast.parse((SOURCE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    known = set(modules())
    libraries, ours = set(), set()
    for name in imported_names(tree):
        first, _, rest = name.partition(".")
        if first != "raysweep":
            libraries.add(first)
            continue
        parts = rest.split(".")
        candidates = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
        candidates += [f"{candidate}.__init__" for candidate in candidates]
        ours.add(next((candidate for candidate in candidates if candidate in known), "__init__"))
    return frozenset(libraries), frozenset(ours)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected sets of two or more nodes: each node reaches each other one."""

    def reached_from(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            for node in graph[waiting.pop()] - found:
                found.add(node)
                waiting.append(node)
        return found

    reach = {node: reached_from(node) for node in graph}
    together = {
        frozenset(other for other in reach[node] if node in reach[other]) for node in graph if node in reach[node]
    }
    return sorted(sorted(circle) for circle in together)


def test_every_package_is_in_the_table() -> None:
    assert {package_of(module) for module in modules()} == set(ALLOWED) | EDGE


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_a_package_imports_only_what_the_table_allows(package: str) -> None:
    allowed = ALLOWED[package] | ANYBODY | {package}
    for module in modules():
        if package_of(module) == package:
            wrong = {
                other
                for other in imports(module)[1]
                if package_of(other) not in allowed and other not in allowed and other != "__init__"
            }
            assert not wrong, f"{module} imports {wrong}"


def test_no_module_imports_one_that_imports_it() -> None:
    graph = {module: set(imports(module)[1]) - {module} for module in modules()}
    assert circles(graph) == []


def test_no_package_imports_one_that_imports_it() -> None:
    graph: dict[str, set[str]] = {package_of(module): set() for module in modules()}
    for module in modules():
        if module != "__init__":  # the version, which the first event of a run states, and lazily the public API
            graph[package_of(module)] |= {package_of(other) for other in imports(module)[1]} - {"__init__"}
    for package, others in graph.items():
        others.discard(package)
    assert circles(graph) == []


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


@pytest.mark.parametrize("module", modules())
def test_torch_and_ray_stay_where_they_belong(module: str) -> None:
    libraries = imports(module)[0]
    if package_of(module) not in TORCH_PACKAGES:
        assert not libraries & TORCH
    if package_of(module) not in RAY_PACKAGES:
        assert "ray" not in libraries


@pytest.mark.parametrize("package", sorted(path.parent.name for path in SOURCE.glob("*/__init__.py")))
def test_each_package_says_what_it_is_for_and_who_calls_it(package: str) -> None:
    docstring = ast.get_docstring(ast.parse((SOURCE / package / "__init__.py").read_text(encoding="utf-8")))
    assert docstring
    assert 2 <= len(docstring.splitlines()) <= 5


def test_imports_have_no_side_effects_and_the_command_line_is_light() -> None:
    code = (
        "import sys; import raysweep, raysweep.cli.commands, raysweep.config.space_parser, raysweep.report.write; "
        "heavy = {'torch', 'ray', 'sentence_transformers', 'transformers', 'matplotlib', 'faiss', 'datasets'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def table_of_docs(header: str) -> list[list[str]]:
    """The cells of the rows of the architecture page's table with this header."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = page.split(header + "\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_architecture_page_has_the_table_of_imports() -> None:
    rows = {name.strip("`"): allowed for name, _, allowed in table_of_docs("| package | is for | may import |")}
    assert rows.pop("cli`; `api`, the public API") == "all"
    documented = {name: set(allowed.split(", ")) - {"nothing"} for name, allowed in rows.items()}
    assert documented == {name: allowed for name, allowed in ALLOWED.items() if name not in ANYBODY - {"storage"}}
