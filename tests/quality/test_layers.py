"""Who may import whom, read from the source: pure < training and ray < edge."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "raysweep"

PURE = {
    "account", "arguments", "artifacts", "carving", "coding", "config", "dataset", "decisions", "demo", "document", "errors", "examples", "files", "freezing", "goal", "growth", "hub", "keeping", "ledger", "locations", "losses", "metrics",
    "model_source", "neighbours", "pareto", "progress", "proposals", "reading", "recorded", "recording", "records", "replay", "replicates", "results", "resuming", "schedules", "searching", "sources", "space", "space_parser",
    "spending", "status", "stopping", "study", "surrogate", "sweep", "trial", "warm",
}  # fmt: skip
TRAINING = {
    "batches", "checkpoint", "composite", "criterion", "dropout", "encoder", "engine", "evaluation", "memory", "operating", "optimizers", "precision", "prefix", "scoring",
    "training", "validation", "weights",
}  # fmt: skip
RAY = {"cluster", "prepare", "search", "stages"}
EDGE = {
    "__init__",
    "__main__",
    "cli",
    "export",
    "figures",
    "page",
    "replaying",
    "report",
    "runner",
    "summary",
    "tables",
}
REPORT = {"figures", "page", "report", "summary", "tables"}

TORCH = {"torch", "sentence_transformers", "transformers", "safetensors"}


def imports(module: str) -> tuple[set[str], set[str]]:
    """Every outside package and every module of ours that a module imports anywhere but for type checking."""
    outside: set[str] = set()
    ours: set[str] = set()
    tree = ast.parse((PACKAGE / f"{module}.py").read_text())
    hidden = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if node in hidden:
            continue
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            first, _, rest = name.partition(".")
            if first == "raysweep":
                ours |= {rest.split(".")[0]} & (PURE | TRAINING | RAY | EDGE)
            else:
                outside.add(first)
    return outside, ours


def test_every_module_has_a_layer() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} == PURE | TRAINING | RAY | EDGE


@pytest.mark.parametrize("module", sorted(PURE | TRAINING | RAY | EDGE))
def test_layer(module: str) -> None:
    outside, ours = imports(module)
    if module in PURE:
        assert not outside & (TORCH | {"ray"})
        assert ours <= PURE
    if module in TRAINING:
        assert "ray" not in outside
        assert ours <= PURE | TRAINING
    if module in RAY:
        assert ours <= PURE | TRAINING | RAY
    else:
        assert "ray" not in outside, "only the Ray layer imports ray"
    if module in REPORT:
        assert not outside & TORCH
        assert ours <= PURE | REPORT


def test_imports_have_no_side_effects_and_the_command_line_is_light() -> None:
    code = (
        "import sys; import raysweep.cli, raysweep.config, raysweep.space, raysweep.report; "
        "heavy = {'torch', 'ray', 'sentence_transformers', 'transformers', 'matplotlib', 'faiss', 'datasets'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
