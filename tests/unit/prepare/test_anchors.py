"""Examples of a few anchors per class, and SetFit's pairs."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.prepare.build import prepare_here
from raysweep.prepare.plan import make_plan
from support.sweep_files import read

ROWS = "text,label\n" + "".join(f"sentence {number},{number % 3}\n" for number in range(300))

SWEEP = """\
data: {train: train.csv, dev_fraction: 0.1}
model: demo
examples: {k: 5, anchors_per_class: 7, target: 100000}
evaluation: {k: 4}
space: {loss: cosine_similarity, learning_rate: 1e-5, examples_per_rung: 2048}
"""


@pytest.fixture
def overrides(tmp_path: Path, tiny_encoder: str) -> dict[str, str]:
    (tmp_path / "train.csv").write_text(ROWS)
    return {
        "data__train": str(tmp_path / "train.csv"),
        "model": tiny_encoder,
        "storage__runs": str(tmp_path / "runs"),
    }


def pairs(prepared: Prepared) -> tuple[np.ndarray, np.ndarray]:
    ids, targets = prepared.examples("scored_pair")
    assert targets is not None
    return np.asarray(ids), np.asarray(targets)


def test_setfits_pairs(tmp_path: Path, overrides: dict[str, str]) -> None:
    """Each of 21 sentences is paired with 5 of its class and 5 of others, like SetFit's iterations."""
    prepared = prepare_here(*read(tmp_path, SWEEP, examples__neighbors="random", **overrides))
    ids, targets = pairs(prepared)
    labels = np.asarray(prepared.sentences.labels)
    anchors = Counter(ids[:, 0].tolist())
    assert len(anchors) == 21 and set(anchors.values()) == {10}
    assert Counter(labels[list(anchors)].tolist()) == {0: 7, 1: 7, 2: 7}
    assert set(ids[:, 1].tolist()) <= set(anchors)
    assert len(np.unique(ids, axis=0)) == len(ids)
    np.testing.assert_array_equal(labels[ids[:, 0]] == labels[ids[:, 1]], targets == 1)
    assert (targets == 1).sum() == (targets == 0).sum() == 105


@pytest.mark.parametrize("mode", ["per_class", "pooled"])
def test_nearest_neighbors_of_anchors_are_any_sentences(
    mode: str, tmp_path: Path, overrides: dict[str, str]
) -> None:
    ids, _ = pairs(prepare_here(*read(tmp_path, SWEEP, examples__neighbors=mode, **overrides)))
    all_pairs, _ = pairs(
        prepare_here(
            *read(
                tmp_path,
                SWEEP,
                examples__neighbors=mode,
                **overrides,
                examples__anchors_per_class="null",
            )
        )
    )
    anchors = set(ids[:, 0].tolist())
    assert len(anchors) == 21
    assert set(ids[:, 1].tolist()) - anchors
    assert {tuple(pair) for pair in ids.tolist()} <= {tuple(pair) for pair in all_pairs.tolist()}
    if mode == "per_class":
        assert len(ids) == 21 * 10


def test_random_neighbors_need_no_embeddings_and_have_their_own_keys(
    tmp_path: Path, overrides: dict[str, str]
) -> None:
    settings = [{}, {"examples__k": "6"}, {"seed": "1"}, {"examples__anchors_per_class": "8"}]
    names = []
    for changes in settings:
        plan = make_plan(
            *read(tmp_path, SWEEP, **{"examples__neighbors": "random", **overrides, **changes})
        )
        (neighbors,) = (stage for stage in plan.stages if stage.kind == "neighbors")
        (sentences,) = (stage for stage in plan.stages if stage.kind == "sentences")
        assert neighbors.parameters["reads"] == [sentences.artifact.name]
        names.append(neighbors.artifact.name)
    assert all(one != other for one, other in pairwise(names))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("min_similarity", "0.5", r"min_similarity is 0\.5.*allowed.*null"),
        ("index", "inverted_file", "index is inverted_file.*allowed.*exact"),
        ("anchors_per_class", "0", "anchors_per_class"),
    ],
)
def test_options_that_conflict_with_random_neighbors_are_rejected(
    key: str, value: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, SWEEP, examples__neighbors="random", **{f"examples__{key}": value})
