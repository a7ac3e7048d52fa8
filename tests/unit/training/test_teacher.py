"""The teacher of distilled trials: which rung of a run it is, its probabilities, and trials that learn from it."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from raysweep.cluster.resources import Request
from raysweep.config import space_parser
from raysweep.config import sweep as configuration
from raysweep.config.document import Document
from raysweep.data.artifacts import Store
from raysweep.data.prepared import Prepared
from raysweep.encoders.copies import find_copy, store_copy
from raysweep.errors import InputError
from raysweep.evaluation.operating_points import Head
from raysweep.prepare.build import prepare_here
from raysweep.prepare.plan import Plan, TeacherStage, make_plan
from raysweep.prepare.workers import TeacherWorker
from raysweep.results.events import RungFinished, TrialStarted
from raysweep.results.ledger import Ledger, point_folder
from raysweep.results.types import Calibration, RunInfo
from raysweep.training.trainer import Training
from raysweep.training.weights import save_point
from raysweep.training.workbench import Workbench
from support.encoders import trial
from support.ledgers import start_session
from support.paths import SPACES

RUNGS = {(0, 1): 0.6, (0, 2): 0.5, (1, 1): 0.4, (1, 2): 0.3}
"""Cross-entropy on dev of each trial's rungs. The weights of the best one were removed."""

RNG = np.random.default_rng(0)
HEADS = {
    key: Head(*(RNG.normal(scale=0.1, size=size).astype(np.float32) for size in ((2, 64), 2)), 1.5)
    for key in RUNGS
}


@pytest.fixture
def run(tmp_path: Path, tiny_bench: Workbench) -> Path:
    """Write a run with two softmax trials of two rungs, whose encoder is the base model with other biases."""
    folder = tmp_path / "teacher"
    folder.mkdir()
    prepared = tiny_bench.prepared
    prepared.save(folder / "prepared.json")
    names = tuple(prepared.sentences.label_names)
    info = RunInfo("s", "0", "d", "m", "r", 8, "uniform", 0.5, "similarity", 2, {}, {}, names, 0)
    ledger = Ledger(folder)
    ledger.append(start_session(folder, info, yaml.safe_dump({}).encode()))
    config = trial(loss="softmax")
    tiny_bench.start(config)
    for number in (0, 1):
        ledger.append(TrialStarted(trial=number, config=config.recorded, num_rungs=2))
    for (number, step), cross_entropy in RUNGS.items():
        calibration = Calibration(number, step, "dev", 1.5, cross_entropy, cross_entropy, 0.1, 0.1)
        rung: dict[str, Any] = {
            "trial": number,
            "step": step,
            "examples_seen": 64 * step,
            "seconds": 1.0,
            "loss": 0.5,
        }
        ledger.append(
            RungFinished(**rung, stop=None, points=(), calibration=calibration, labeled=None)
        )
        if (number, step) != (1, 2):
            save_point(
                folder / point_folder(number, step),
                tiny_bench.trainable.trained(),
                HEADS[number, step],
            )
    ledger.close()
    return folder


def plan(prepared: Prepared, **overrides: str) -> Plan:
    """Return the plan of a sweep over the same data whose trials learn from a teacher."""
    folder = Path(prepared.sentences_artifact.location).parent
    document = Document.read(SPACES / "smoke.yaml")
    values = {
        "data.train": str(folder / "train.parquet"),
        "model": prepared.model["name"],
        "storage.runs": str(folder),
        "space.freezing": "none",
        "space.loss": "softmax",
        "space.targets": "teacher",
        **overrides,
    }
    for key, value in values.items():
        document.override(key, value, configuration.SHORT_FORMS)
    config = configuration.parse(document)
    return make_plan(config, space_parser.parse(document, config))


def test_probabilities_are_those_of_the_best_stored_rung(run: Path, tiny_bench: Workbench) -> None:
    student = plan(tiny_bench.prepared, teacher=str(run))
    prepared = prepare_here(student.config, student.space)
    assert prepared.teacher_artifact != tiny_bench.prepared.teacher_artifact
    probabilities = np.asarray(prepared.teacher_probabilities[:])
    embeddings = np.asarray(tiny_bench.prepared.reference_embeddings.document[:]).astype(np.float64)
    head = HEADS[1, 1]
    # 8 is the root of the width
    logits = 8 * embeddings @ head.weight.T.astype(np.float64) + head.bias
    powers = np.exp(logits)
    expected = powers / powers.sum(axis=1, keepdims=True)
    assert np.ptp(expected[:, 0]) > 1e-3
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)
    assert probabilities.dtype == np.float32
    prepared.save(run / "student.json")
    assert Prepared.open(run / "student.json").teacher_artifact == prepared.teacher_artifact
    assert prepared.teacher_artifact is not None
    assert prepared.teacher_artifact.summary["num_dev_seen"] == 0


def test_worker_loads_the_copy_of_an_encoder_that_its_node_lacks(
    run: Path, tiny_bench: Workbench, tmp_path: Path
) -> None:
    prepared = tiny_bench.prepared
    stages = plan(prepared, teacher=str(run)).stages
    (teacher,) = (stage.teacher for stage in stages if isinstance(stage, TeacherStage))
    elsewhere = dataclasses.replace(
        teacher,
        encoder=teacher.encoder.model_copy(update={"name": str(tmp_path / "not-on-this-node")}),
    )
    workers = [
        TeacherWorker(prepared.sentences_artifact, each, Request(1, 0, 1))
        for each in (teacher, elsewhere)
    ]
    store = Store(prepared.sentences_artifact.location)
    store_copy(store, Path(teacher.encoder.name), teacher.identity, print)
    try:
        expected, loaded = (
            worker.model.probabilities(["a warm room", "cold soup"]) for worker in workers
        )
    finally:
        store.remove(find_copy(store.location, teacher.identity))
    assert np.array_equal(loaded, expected)


def test_key_changes_with_the_teacher(run: Path, tiny_bench: Workbench) -> None:
    def key(**overrides: str) -> str:
        artifact = plan(
            tiny_bench.prepared, teacher=str(run), **overrides
        ).prepared.teacher_artifact
        assert artifact is not None
        return artifact.name

    best = key()
    assert key(**{"teacher.trial": "1"}) == best
    assert key(**{"teacher.trial": "0"}) != best


def test_unsuitable_teachers(run: Path, tiny_bench: Workbench, tmp_path: Path) -> None:
    prepared = tiny_bench.prepared
    with pytest.raises(InputError, match=r"yaml: teacher is missing"):
        plan(prepared)
    with pytest.raises(InputError, match=r"teacher\.run: .*no such folder"):
        plan(prepared, teacher=str(tmp_path / "nothing"))
    with pytest.raises(InputError, match=r"teacher\.trial is 7; allowed: .*: 0, 1"):
        plan(prepared, teacher=str(run), **{"teacher.trial": "7"})
    teacher = next(
        stage.teacher
        for stage in plan(prepared, teacher=str(run)).stages
        if hasattr(stage, "teacher")
    )
    with pytest.raises(
        InputError, match=r"teacher\.run is .*, whose classes are 0, 1; allowed: .*no, yes"
    ):
        dataclasses.replace(teacher, label_names=("0", "1")).check_classes(["no", "yes"])
    changed = (run / "prepared.json").read_text().replace(prepared.model_identity, "other")
    (run / "prepared.json").write_text(changed)
    with pytest.raises(InputError, match="model .* has changed"):
        plan(prepared, teacher=str(run))


def test_teacher_that_is_certain_of_every_label_trains_like_the_labels(
    tiny_bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = np.asarray(tiny_bench.prepared.sentences.labels[:])
    monkeypatch.setitem(
        vars(tiny_bench.prepared), "teacher_probabilities", np.eye(2, dtype=np.float32)[labels]
    )

    def losses(**parameters: Any) -> list[float]:
        training = Training(
            trial(loss="softmax", dropout=0.0, **parameters), tiny_bench, seed=3, num_rungs=1
        )
        values = []
        for _ in range(3):
            training.step()
            values.append(float(training.loss_sum))
        return values

    assert losses(targets="teacher") == pytest.approx(losses(), rel=1e-4)
    assert losses(targets="teacher", teacher_temperature=4.0) != pytest.approx(losses(), rel=1e-2)
