"""Scores of pairs by expert encoders, the targets that trials compute from them, and experts that are rejected."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from raysweep.config.soft_targets import SOFT_TARGETS, soft_targets
from raysweep.config.sweep import EvaluationConfig
from raysweep.data import demo
from raysweep.data.expert_scores import ExpertScores
from raysweep.data.prepared import Prepared
from raysweep.data.shards import open_array
from raysweep.errors import InputError
from raysweep.prepare.build import prepare_here
from raysweep.prepare.plan import make_plan
from raysweep.training.batches import ExampleOrder
from raysweep.training.trial import rungs
from raysweep.training.validation import ValidationExamples
from raysweep.training.workbench import Workbench
from support.displays import ListDisplay
from support.encoders import trial, write_first_token, write_nan_encoder
from support.kinds import write_static
from support.sweep_files import read

SWEEP = """\
data: {train: train.csv, dev_fraction: 0.2}
model: demo
examples: {k: 3, target: 600}
evaluation: {k: 4}
space:
  loss: {choices: {cosine_similarity: {targets: {choices: [hard, soft1]}}}}
  learning_rate: 1e-5
  examples_per_rung: 2048
"""

PrepareExperts = Callable[..., Prepared]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experts")
    sentences = demo.generate()[0][:120]
    rows = [f'"{row.text}",{row.label}\n' for row in sentences]
    (folder / "train.csv").write_text("text,label\n" + "".join(rows))
    return folder


@pytest.fixture(scope="module")
def experts(folder: Path, tiny_encoder: str, demo_package: ModuleType) -> list[str]:
    """Return the tuned encoder, the same one pooled by its first token, and static embeddings."""
    static = write_static(folder / "static", Path(demo_package.get_model_path()))
    return [tiny_encoder, write_first_token(tiny_encoder, folder / "first-token"), static]


@pytest.fixture(scope="module")
def overrides(folder: Path, tiny_encoder: str) -> dict[str, str]:
    return {
        "data__train": str(folder / "train.csv"),
        "storage__runs": str(folder / "runs"),
        "model": tiny_encoder,
    }


@pytest.fixture(scope="module")
def prepared(folder: Path, experts: list[str], overrides: dict[str, str]) -> Prepared:
    return prepare_here(*read(folder, SWEEP, examples__experts=json.dumps(experts), **overrides))


def test_scores_equal_the_cosines_of_each_experts_own_embeddings(
    prepared: Prepared, experts: list[str]
) -> None:
    texts = prepared.sentences.texts(np.arange(len(prepared.sentences)))
    labels = np.asarray(prepared.sentences.labels)
    train_pairs, _ = prepared.examples("scored_pair")
    dev_pairs, _ = prepared.dev_pairs("soft1")
    for split, pairs in (("train", train_pairs), ("dev", dev_pairs)):
        scores = ExpertScores.open(prepared.scores_artifacts[split].folder)
        assert scores.cosines.dtype == np.float32
        assert scores.cosines.shape == (len(pairs), 3)
        np.testing.assert_array_equal(scores.same_class, labels[pairs[:, 0]] == labels[pairs[:, 1]])
        for column, expert in enumerate(experts):
            embeddings = SentenceTransformer(expert, device="cpu").encode(
                texts, normalize_embeddings=True
            )
            expected = [embeddings[one] @ embeddings[other] for one, other in pairs.tolist()]
            np.testing.assert_allclose(scores.cosines[:, column], expected, atol=2e-6)
        assert set(pairs.ravel().tolist()) <= set(prepared.sentences.ids(split).tolist())


def test_active_sets_add_up_to_one_plus_ties(prepared: Prepared) -> None:
    scores = ExpertScores.open(prepared.scores_artifacts["train"].folder)
    best = np.where(scores.same_class, scores.cosines.max(axis=1), scores.cosines.min(axis=1))
    is_active = scores.cosines == best[:, None]
    shares = prepared.scores_artifacts["train"].summary["active_sets"]
    np.testing.assert_allclose(shares, is_active.mean(axis=0))
    assert sum(shares) == pytest.approx(is_active.sum() / len(best))


def test_trials_train_and_validate_on_soft_targets(prepared: Prepared) -> None:
    scores = {
        split: ExpertScores.open(artifact.folder)
        for split, artifact in prepared.scores_artifacts.items()
    }
    hard = ExampleOrder(prepared, "scored_pair", 0)
    queries = prepared.sentences.ids("dev")
    examples = ValidationExamples.of(prepared, "scored_pair", queries, (1.0, 0.0))
    assert set(np.unique(hard.targets)) == {0, 1}
    for rule in SOFT_TARGETS:
        order = ExampleOrder(prepared, "scored_pair", 0, soft_targets=rule)
        expected = soft_targets(rule, scores["train"].same_class, scores["train"].cosines)
        np.testing.assert_array_equal(order.targets, expected)
        np.testing.assert_array_equal(
            order.take(8)[0], ExampleOrder(prepared, "scored_pair", 0).take(8)[0]
        )
        soft = examples.with_soft_targets(prepared, rule, queries)
        np.testing.assert_array_equal(soft.rows, examples.rows)
        np.testing.assert_array_equal(soft.targets, scores["dev"].targets(rule))


def test_losses_of_rungs_are_squared_errors_to_the_targets(prepared: Prepared) -> None:
    """The first batch is that of the untrained encoder, which is the first expert."""
    bench = Workbench(prepared, EvaluationConfig(k=4))
    scores = ExpertScores.open(prepared.scores_artifacts["train"].folder)
    for rule in ("hard", "soft2"):
        config = trial(
            loss="cosine_similarity", targets=rule, examples_per_rung=16, batch_size=16, dropout=0.0
        )
        (rung,) = rungs(config, bench, seed=0, num_rungs=1)
        order = ExampleOrder(prepared, "scored_pair", 0)
        positions = np.random.default_rng(0).permutation(len(order.ids))[:16]
        targets = scores.same_class if rule == "hard" else scores.targets(rule)
        errors = scores.cosines[positions, 0] - targets[positions]
        assert rung.loss == pytest.approx(np.mean(errors**2), rel=1e-4)


def test_another_expert_encodes_only_with_itself_and_another_rule_prepares_nothing(
    folder: Path,
    prepared: Prepared,
    experts: list[str],
    overrides: dict[str, str],
    tiny_encoder: str,
) -> None:
    fourth = write_nan_encoder(tiny_encoder, folder / "fourth")
    settings = {**overrides, "examples__experts": json.dumps([*experts, fourth])}
    missing = make_plan(*read(folder, SWEEP, **settings)).missing
    assert [stage.name for stage in missing] == ["encoded", "scores train", "scores dev"]
    settings = {**overrides, "examples__experts": json.dumps(experts), "space": json.dumps(
        {"loss": "cosine_similarity", "targets": "soft3_inner", "learning_rate": 1e-5, "examples_per_rung": 2048}
    )}  # fmt: skip
    assert not make_plan(*read(folder, SWEEP, **settings)).missing


def test_order_of_experts_has_its_own_scores_but_no_new_embeddings(
    folder: Path, prepared: Prepared, experts: list[str], overrides: dict[str, str]
) -> None:
    backwards = json.dumps(experts[::-1])
    plan = make_plan(*read(folder, SWEEP, **overrides, examples__experts=backwards))
    assert [stage.name for stage in plan.missing] == ["scores train", "scores dev"]


def test_scores_are_stored_with_the_sweep(prepared: Prepared, tmp_path: Path) -> None:
    prepared.save(tmp_path / "prepared.json")
    assert Prepared.open(tmp_path / "prepared.json") == prepared
    artifact = prepared.scores_artifacts["dev"]
    assert len(open_array(artifact.folder, "ids")) == artifact.summary["num_pairs"]


def test_unsuitable_experts_are_rejected(
    folder: Path, overrides: dict[str, str], tiny_encoder: str
) -> None:
    nowhere = json.dumps([tiny_encoder, str(folder / "nowhere")])
    with pytest.raises(
        InputError, match=r"^examples\.experts\[1\]: model '.*nowhere': no such folder$"
    ):
        make_plan(*read(folder, SWEEP, **overrides, examples__experts=nowhere))
    with pytest.raises(
        InputError, match=r"^--examples\.experts: contains '.*' more than once; required: "
    ):
        read(folder, SWEEP, examples__experts=json.dumps([tiny_encoder, tiny_encoder]))
    not_finite = write_nan_encoder(tiny_encoder, folder / "nan")
    with pytest.raises(InputError, match=r"nan': its embeddings contain NaN or infinity$"):
        prepare_here(*read(folder, SWEEP, **overrides, examples__experts=json.dumps([not_finite])))


def test_experts_that_truncate_are_reported(
    folder: Path, overrides: dict[str, str], tiny_encoder: str
) -> None:
    settings = json.dumps([{"name": tiny_encoder, "max_tokens": 14}])
    display = ListDisplay()
    prepared = prepare_here(*read(folder, SWEEP, **overrides, examples__experts=settings), display)
    tokenizer = SentenceTransformer(tiny_encoder, device="cpu").tokenizer
    texts = prepared.sentences.texts(np.arange(len(prepared.sentences)))
    num_long = sum(len(ids) > 14 for ids in tokenizer(texts)["input_ids"])
    assert 0 < num_long < len(texts)
    (warning,) = [line for line in display.lines if "truncates" in line]
    assert f"truncates {num_long} of {len(texts)} sentences" in warning


def test_soft_targets_need_experts(tmp_path: Path, tiny_prepared: Prepared) -> None:
    with pytest.raises(
        InputError,
        match=r"line 6: space\.loss\.\S+\.targets is soft1; allowed without examples\.experts: hard$",
    ):
        read(tmp_path, SWEEP)
    with pytest.raises(InputError, match=r"^--space\.loss\.\S+\.targets is soft2; allowed"):
        read(tmp_path, SWEEP, space__loss="{choices: {cosine_similarity: {targets: soft2}}}")
    with pytest.raises(
        InputError, match=r"targets is 'soft2'; allowed without examples\.experts: hard"
    ):
        tiny_prepared.soft_targets("soft2")
