"""A run with a point of every kind, for tests of the export."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType, ModuleType

import pyarrow
import pyarrow.parquet
import pytest
import torch
import yaml
from transformers import BertConfig, BertModel

from raysweep.config import space_parser
from raysweep.config import sweep as configuration
from raysweep.config.document import Document
from raysweep.config.trial import trial_config
from raysweep.data import demo
from raysweep.data.prepared import Prepared
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.metrics.retrieval import Scores
from raysweep.prepare.build import prepare_here
from raysweep.results.events import PointsScored, RungFinished, TrialStarted
from raysweep.results.ledger import Ledger, point_name
from raysweep.results.query_scores import (
    PackedScores,
    PointName,
    baselines_file,
    name_of_point,
    rung_file,
)
from raysweep.results.types import RunInfo, point_of
from raysweep.storage.folder import LocalFolder
from raysweep.training import trial as engine
from raysweep.training import workbench
from raysweep.training.weights import save_point
from support.encoders import sentence_encoder, write_with_prompts
from support.ledgers import start_session
from support.paths import SPACES


def with_three_classes(folder: Path) -> Path:
    """Write the demo's sentences, with questions as a third class."""
    rows = demo.generate()[0][:500]
    labels = ["asks" if "?" in row.text else row.label for row in rows]
    path = folder / "train.parquet"
    pyarrow.parquet.write_table(
        pyarrow.table({"text": [row.text for row in rows], "label": labels}), path
    )
    return path


def store_scores(folder: Path, file: str, scores: Mapping[PointName, Scores]) -> None:
    """Store per-query scores as a worker does."""
    named = {name: point_scores.named for name, point_scores in scores.items()}
    LocalFolder(folder).put(file, PackedScores.pack_points(named).content())


@pytest.fixture(scope="package")
def run(
    tmp_path_factory: pytest.TempPathFactory, demo_package: ModuleType
) -> tuple[Path, Prepared, EvaluationSet]:
    """Return a finished run: a softmax and a triplet trial of one rung each, with every kind of point.

    The weights of the softmax trial are averages over its steps.
    """
    folder = tmp_path_factory.mktemp("run")
    return _write_run(folder, _varied_encoder(folder, demo_package))


def _varied_encoder(folder: Path, demo_package: ModuleType) -> str:
    """Save an encoder with large weights, so that each kind of point retrieves other sentences."""
    torch.manual_seed(0)
    tiny = BertConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        initializer_range=0.3,
    )
    return sentence_encoder(BertModel(tiny), folder, demo_package.get_model_path())


@pytest.fixture(scope="package")
def prompted_run(
    tmp_path_factory: pytest.TempPathFactory, demo_package: ModuleType
) -> Callable[[str], tuple[Path, Prepared, EvaluationSet]]:
    """Return a function that writes, once, the same run of an encoder with prompts of a kind; the sweep sets none."""

    @cache
    def write(kind: str) -> tuple[Path, Prepared, EvaluationSet]:
        folder = tmp_path_factory.mktemp("prompted")
        encoder = write_with_prompts(
            _varied_encoder(folder, demo_package), folder / "prompted", kind
        )
        return _write_run(folder, encoder)

    return write


@pytest.fixture(scope="package")
def prompts_run(
    tmp_path_factory: pytest.TempPathFactory, demo_package: ModuleType
) -> tuple[Path, Prepared, EvaluationSet]:
    """Return the same run with different prompts for queries and documents."""
    folder = tmp_path_factory.mktemp("prompts")
    return _write_run(folder, _with_two_prompts(folder, demo_package))


@pytest.fixture(scope="package")
def query_run(
    tmp_path_factory: pytest.TempPathFactory, demo_package: ModuleType
) -> tuple[Path, Prepared, EvaluationSet]:
    """Return the same run with two prompts, whose triplet trial tuned only the encoder of queries."""
    folder = tmp_path_factory.mktemp("queries")
    return _write_run(folder, _with_two_prompts(folder, demo_package), tower="query")


@pytest.fixture(scope="package")
def separate_run(
    tmp_path_factory: pytest.TempPathFactory, demo_package: ModuleType
) -> tuple[Path, Prepared, EvaluationSet]:
    """Return the same run with two prompts, whose triplet trial tuned an encoder of queries and one of documents."""
    folder = tmp_path_factory.mktemp("separate")
    return _write_run(folder, _with_two_prompts(folder, demo_package), tower="separate")


def _with_two_prompts(folder: Path, demo_package: ModuleType) -> str:
    """Save the encoder of :func:`run` and return the setting that gives it different prompts."""
    prompts = {"query": "query: ", "document": "passage: "}
    return json.dumps({"name": _varied_encoder(folder, demo_package), "prompt": prompts})


@pytest.fixture(scope="package")
def write_run() -> Callable[..., tuple[Path, Prepared, EvaluationSet]]:
    return _write_run


def _write_run(
    folder: Path,
    encoder: str,
    parameters: Mapping[str, object] = MappingProxyType({}),
    tower: str = "both",
) -> tuple[Path, Prepared, EvaluationSet]:
    """Write the run that :func:`run` describes, with an encoder and the ``parameters`` of both trials.

    The triplet trial has the given tower.
    """
    (folder / "points").mkdir()
    document = Document.read(SPACES / "smoke.yaml")
    document.override("data.train", str(with_three_classes(folder)))
    document.override("storage.runs", str(folder))
    document.override("model", encoder)
    document.override("space.freezing", "none")
    document.override("space.loss", "{choices: {softmax: {}, triplet: {margin: 0.2}}}")
    document.override(
        "evaluation.points",
        "{concat: [0.3, 1.0], class_concat: [0.1, 1.0], interpolate: [0.4], truncate: [16], labeled: [0.2]}",
    )
    config = configuration.parse(document)
    prepared = prepare_here(config, space_parser.parse(document, config))
    torch.set_num_threads(1)  # preparing raised it
    prepared.save(folder / "prepared.json")
    settings = yaml.safe_dump(config.model_dump(mode="json")).encode()
    bench = workbench.Workbench(prepared, config.evaluation)
    queries, pool = {"dev": len(bench.dev.queries)}, {"dev": len(bench.dev.pool)}
    names = tuple(prepared.sentences.label_names)
    info = RunInfo(
        "s", "0", "d", "m", "r", 8, "uniform", 0.5, "similarity", 2, queries, pool, names, 0
    )
    ledger = Ledger(folder)
    ledger.append(start_session(folder, info, settings))
    for number, loss in enumerate(("softmax", "triplet")):
        values = {
            "loss": loss,
            "learning_rate": 3e-3,
            "examples_per_rung": 96,
            "batch_size": 16,
            "precision": "fp32",
        }
        average = {"average_decay": 0.7} if loss == "softmax" else {}
        towers = {"tower": tower} if loss == "triplet" else {}
        trial = trial_config({**values, **average, **towers, **parameters})
        ledger.append(TrialStarted(trial=number, config=trial.recorded, num_rungs=1))
        (result,) = engine.rungs(trial, bench, seed=number, num_rungs=1)
        save_point(folder / "points" / point_name(number, 1), bench.trainable.trained(), bench.head)
        points, labeled = (
            tuple(
                point_of(point, trial=number, step=1) for point in bench.describe(bench.dev, scores)
            )
            for scores in (result.points, result.labeled)
        )
        rung = {
            "trial": number,
            "step": 1,
            "examples_seen": 96,
            "seconds": 1.0,
            "loss": result.loss,
        }
        calibration = result.calibration and dataclasses.replace(
            result.calibration, trial=number, step=1
        )
        ledger.append(
            RungFinished(
                **rung, stop=None, points=points, calibration=calibration, labeled=labeled or None
            )
        )
        store_scores(
            folder,
            rung_file("dev", number, 1),
            {(number, 1, *key): point_scores for key, point_scores in result.points.items()},
        )
    reference_scores = bench.dev.reference_scores
    reference = bench.dev.point(
        reference_scores, trial=None, step=None, kind="reference", value=None, width=64
    )
    ledger.append(PointsScored(points=(reference,)))
    store_scores(folder, baselines_file("dev"), {name_of_point(reference): reference_scores})
    ledger.close()
    return folder, prepared, bench.dev


@pytest.fixture
def all_on_the_front(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "raysweep.report.front.front_points",
        lambda points, goals: [point for point in points if point.trial is not None],
    )
