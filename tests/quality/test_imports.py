"""Import rules: a table of packages, no cycles, and the libraries that each package may use."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest

from support.paths import ROOT

SOURCE = ROOT / "raysweep"

# Modules and packages that every package may import.
ANYBODY = {"errors", "output", "terminal", "version", "storage"}
EVALUATION = {"config", "data", "encoders", "metrics", "results"}
TRAINING = EVALUATION | {"evaluation"}
REPLAY = {"config", "metrics", "results", "search"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "output": set(),
    "terminal": set(),
    "version": set(),
    "storage": set(),
    "config": {"metrics"},
    "metrics": set(),
    "data": {"config", "metrics"},
    "cluster": {"config", "results"},
    "results": {"config", "metrics"},
    "uncertainty": {"metrics"},
    "search": {"config", "metrics", "results"},
    "encoders": {"config", "data"},
    "replay": REPLAY,
    "control": {"config", "results"},
    "controller": REPLAY | {"control", "data.prepared"},
    "report": {"control", "metrics", "results", "uncertainty"},
    "paper": {"config", "replay", "report", "results", "uncertainty"},
    "trackers": {"config", "metrics", "report", "results"},
    "evaluation": EVALUATION | {"uncertainty"},
    "training": TRAINING,
    "prepare": {"config", "data", "encoders", "metrics", "cluster", "training.teacher"},
    "export": {
        "config",
        "data",
        "encoders",
        "evaluation",
        "metrics",
        "training",
        "results",
        "report",
    },
    "ray_tune": TRAINING
    | {"training", "search", "controller", "prepare", "cluster", "control", "export", "trackers"}
    | {"paper.published_scores"},
}
# the commands and the public API may import everything
EDGE = {
    "cli",
    "api",
    "__init__",
    "__main__",
}

TORCH = {"torch", "sentence_transformers", "transformers"}
TORCH_PACKAGES = {"encoders", "evaluation", "training", "export", "ray_tune"}
RAY_PACKAGES = {"cluster", "prepare", "ray_tune"}
RAY_INTERNALS = "cluster.ray_internals"
PRIVATE_IN_RAY = re.compile(r"ray\.([\w.]+\.)?_[a-z]|ray\.(core\.generated|autoscaler\.v2\.sdk)\b")


def modules() -> list[str]:
    """Return every module by its dotted name within the package, such as ``data.sources``."""
    paths = (path.relative_to(SOURCE).with_suffix("") for path in SOURCE.rglob("*.py"))
    return sorted(".".join(path.parts) for path in paths)


def package_of(module: str) -> str:
    return module.split(".")[0]


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Yield every imported dotted name, including imports inside functions and for type checking."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def private_ray_names(tree: ast.AST) -> set[str]:
    """Return the private names of Ray that code imports, accesses or has in a string."""
    names = set(imported_names(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names.add(ast.unparse(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return set(filter(PRIVATE_IN_RAY.match, names))


def read_tree(module: str) -> ast.AST:
    return ast.parse((SOURCE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))


@cache
def imports(module: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the other libraries and the modules of raysweep that a module imports."""
    tree = read_tree(module)
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


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected sets of two or more nodes."""

    def reachable_from(start: str) -> set[str]:
        reachable: set[str] = set()
        waiting = [start]
        while waiting:
            for node in graph[waiting.pop()] - reachable:
                reachable.add(node)
                waiting.append(node)
        return reachable

    reachable = {node: reachable_from(node) for node in graph}
    in_cycles = [node for node in graph if node in reachable[node]]
    components = {
        frozenset(other for other in reachable[node] if node in reachable[other])
        for node in in_cycles
    }
    return sorted(sorted(component) for component in components)


def test_every_package_is_in_the_table() -> None:
    assert {package_of(module) for module in modules()} == set(ALLOWED) | EDGE


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_packages_import_only_allowed_packages(package: str) -> None:
    allowed = ALLOWED[package] | ANYBODY | {package}
    for module in modules():
        if package_of(module) == package:
            wrong = {
                other
                for other in imports(module)[1]
                if package_of(other) not in allowed and other not in allowed and other != "__init__"
            }
            assert not wrong, f"{module} imports {wrong}"


def test_modules_have_no_import_cycles() -> None:
    graph = {module: set(imports(module)[1]) - {module} for module in modules()}
    assert cycles(graph) == []


def test_packages_have_no_import_cycles() -> None:
    graph: dict[str, set[str]] = {package_of(module): set() for module in modules()}
    for module in modules():
        if module != "__init__":  # it imports the version and, for type checking, the public API
            graph[package_of(module)] |= {package_of(other) for other in imports(module)[1]} - {
                "__init__"
            }
    for package, others in graph.items():
        others.discard(package)
    assert cycles(graph) == []


def test_cycles_are_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


@pytest.mark.parametrize("module", modules())
def test_only_some_packages_import_torch_and_ray(module: str) -> None:
    libraries = imports(module)[0]
    if package_of(module) not in TORCH_PACKAGES:
        assert not libraries & TORCH
    if package_of(module) not in RAY_PACKAGES:
        assert "ray" not in libraries


def test_one_module_uses_private_interfaces_of_ray() -> None:
    assert [module for module in modules() if private_ray_names(read_tree(module))] == [
        RAY_INTERNALS
    ]


@pytest.mark.parametrize(
    "code",
    [
        "from ray._private.services import canonicalize_bootstrap_address",
        "import ray; ray._raylet.GcsClient()",
        "import ray; ray.util._inspect()",
        "from ray.autoscaler.v2.sdk import get_cluster_status",
        "import importlib; importlib.import_module('ray.core.generated.autoscaler_pb2')",
    ],
)
def test_private_interfaces_of_ray_are_found(code: str) -> None:
    assert private_ray_names(ast.parse(code))


def test_imports_are_light_and_have_no_side_effects() -> None:
    code = (
        "import sys; import raysweep, raysweep.cli.commands, raysweep.config.space_parser, raysweep.report.write; "
        "heavy = {'torch', 'ray', 'sentence_transformers', 'transformers', 'matplotlib', 'faiss', 'datasets'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
