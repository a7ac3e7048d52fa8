"""Per-query scores: the selection of kept points, accuracy after a round trip, and damaged files."""

import dataclasses
import io
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.errors import InputError
from raysweep.metrics.arrays import Float64Array
from raysweep.results.query_scores import (
    PackedArray,
    PackedScores,
    PointName,
    bytes_per_query,
    join_scores,
    kept_names,
    load_query_scores,
    name_of_point,
    rung_file,
)
from raysweep.results.reader import load
from raysweep.results.types import Point, Results, Trial
from raysweep.storage.folder import LocalFolder
from support.ledgers import (
    INFO,
    StoredSweep,
    baseline,
    dev_front,
    point,
    random_trials,
    write_ledger,
)
from support.points import with_spreads
from support.query_scores import scores_of, write_query_scores


def pack(
    names: Sequence[PointName], polarity: Float64Array, similarity: Float64Array
) -> PackedScores:
    return PackedScores.pack(names, {"polarity": polarity, "similarity": similarity})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    trials = random_trials(30)
    probes = [baseline(split, "probe", 0.8, 0.44, value=0.3) for split in ("dev", "test")]
    write_ledger(tmp_path, trials, StoredSweep(test_of=dev_front(trials), baselines=probes))
    write_query_scores(tmp_path, load(tmp_path))
    return tmp_path


def is_near(candidate: Point, front: list[Point], num_queries: int) -> bool:
    """Compute by the definition, point by point."""
    polarity = candidate["polarity"] + 3 * candidate.std("polarity") / num_queries**0.5
    similarity = candidate["similarity"] + 3 * candidate.std("similarity") / num_queries**0.5
    return not any(
        member["polarity"] >= polarity
        and member["similarity"] >= similarity
        and (member["polarity"], member["similarity"]) != (polarity, similarity)
        for member in front
    )


def test_scores_near_the_front_are_read_back(run: Path) -> None:
    results = load(run)
    loaded = load_query_scores(LocalFolder(run), results)
    trials = [point for point in results.points if point.trial is not None]
    on_dev = [point for point in trials if point.split == "dev"]
    front = [point for point in on_dev if not any(dominates(other, point) for other in on_dev)]
    near = {name_of_point(point) for point in on_dev if is_near(point, front, 900)}
    assert len(front) < len(near) < len(on_dev)
    others = [point for point in results.points if point.trial is None]
    for split in ("dev", "test"):
        scores = loaded[split]
        expected = {
            name_of_point(point)
            for point in trials
            if point.split == split and name_of_point(point) in near
        }
        expected |= {name_of_point(point) for point in others if point.split == split}
        assert set(scores.names) == expected
        assert len(scores.names) == len(expected)
        for scored in results.points:
            if scored.split == split and name_of_point(scored) in scores:
                polarity, similarity = scores_of(scored, INFO.num_queries[split])
                row = scores.index(name_of_point(scored))
                np.testing.assert_allclose(scores.scores[row, 0], polarity, atol=1e-12)
                np.testing.assert_allclose(scores.scores[row, 1], similarity, atol=1.6e-5)
                assert abs(scores.scores[row, 1].mean() - scored["similarity"]) < 2e-6
    assert [name[2:] for name in loaded["dev"].names[:7]] == [
        ("reference", None),
        *(("oracle", bonus) for bonus in (0.0, 0.1, 0.2, 0.4, 1.0, 2.0)),
    ]
    names = list(loaded["dev"].names)
    assert loaded["dev"].rows(reversed(names)).tolist() == list(reversed(range(len(names))))
    with pytest.raises(KeyError):
        loaded["dev"].index((99, 1, "plain", None))


def dominates(one: Point, other: Point) -> bool:
    at_least = one["polarity"] >= other["polarity"] and one["similarity"] >= other["similarity"]
    return at_least and (one["polarity"], one["similarity"]) != (
        other["polarity"],
        other["similarity"],
    )


# Few values, so that points are equal, and so that raised ones fall on others.
CANDIDATES = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 2), st.integers(0, 2)),
    min_size=1,
    max_size=20,
)


@settings(deadline=None, max_examples=150)
@given(CANDIDATES, st.lists(st.integers(0, 19), max_size=6))
def test_kept_names_are_near_the_front_or_replicates_of_such_points(
    candidates: list[tuple[int, int, int, int]], repeats: list[int]
) -> None:
    points = [
        with_spreads(point(number, 1, polarity / 8, similarity / 8), p_spread / 3, s_spread / 3)
        for number, (polarity, similarity, p_spread, s_spread) in enumerate(candidates)
    ]
    replicate_of = {
        number: original
        for number, original in enumerate(repeats, len(points) - len(repeats))
        if original < number
    }
    trials = [
        Trial(number, {}, replicate_of=replicate_of.get(number)) for number in range(len(points))
    ]
    info = dataclasses.replace(INFO, num_queries={"dev": 64})
    results = Results("run", info, tuple(trials), (), tuple(points), "completed", "", 1.0)
    front = [point for point in points if not any(dominates(other, point) for other in points)]
    near = {point.trial for point in points if is_near(point, front, 64)}
    kept = near | {
        number for number, original in replicate_of.items() if original in near and number >= 0
    }
    assert {name[0] for name in kept_names(results)} == kept


@settings(deadline=None, max_examples=50)
@given(
    st.integers(1, 6), st.integers(1, 300), st.sampled_from([1, 16, 300]), st.integers(0, 2**32 - 1)
)
def test_packed_scores_are_unpacked(num_points: int, num_queries: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = 2 * np.arange(k, 0, -1) / (k * (k + 1))
    polarity = (rng.random((num_points, num_queries, k)) < 0.7) @ weights
    similarity = rng.uniform(-1.0001, 1.0001, (num_points, num_queries))
    names: list[PointName] = [(number, 1, "concat", 0.3) for number in range(num_points)]
    packed = pack(names, polarity, similarity)
    assert packed.num_bytes <= bytes_per_query() * num_points * num_queries
    read = PackedScores.read(packed.content())
    assert read.names == tuple(names)
    np.testing.assert_array_equal(read.named["polarity"].unpack(), polarity)
    np.testing.assert_allclose(
        read.named["similarity"].unpack(), np.clip(similarity, -1, 1), atol=1.6e-5
    )
    halves = [read.select({name}) for name in names]
    whole = join_scores([*halves, halves[0]])
    assert whole.names == tuple(names)
    np.testing.assert_array_equal(whole.named["polarity"].unpack(), polarity)


def test_point_of_872_queries_takes_less_than_3_kilobytes() -> None:
    rng = np.random.default_rng(0)
    quality = rng.beta(4, 1, (8, 872, 1))
    polarity = (rng.random((8, 872, 16)) < quality).mean(axis=2)
    similarity = rng.normal(0.45, 0.08, (8, 872))
    packed = pack([(0, 1, "concat", float(number)) for number in range(8)], polarity, similarity)
    assert len(packed.content()) / 8 < 3000


def test_run_without_score_files_has_no_scores(tmp_path: Path) -> None:
    write_ledger(tmp_path, random_trials(3))
    assert load_query_scores(LocalFolder(tmp_path), load(tmp_path)) == {}


def test_unknown_rungs_are_skipped(run: Path) -> None:
    """It was being reported when the driver died."""
    before = load_query_scores(LocalFolder(run), load(run))["dev"].names
    packed = pack([(99, 1, "plain", None)], np.ones((1, 5)), np.ones((1, 5)))
    (run / rung_file("dev", 99, 1)).write_bytes(packed.content())
    (run / "scores" / "dev" / ".trial-0000-step-001.npz.0123").write_bytes(b"half of it")
    assert load_query_scores(LocalFolder(run), load(run))["dev"].names == before


def cut(content: bytes) -> bytes:
    return content[:-20]


def one_bit(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]


def other_scores(content: bytes) -> bytes:
    packed = PackedScores.read(content)
    return pack(
        packed.names, packed.named["polarity"].unpack(), packed.named["similarity"].unpack() - 0.01
    ).content()


def fewer_queries(content: bytes) -> bytes:
    packed = PackedScores.read(content)
    polarity, similarity = packed.named["polarity"].unpack(), packed.named["similarity"].unpack()
    return pack(packed.names, polarity[:, 1:], similarity[:, 1:]).content()


def values_missing(content: bytes) -> bytes:
    packed = PackedScores.read(content)
    codes, values = packed.named["polarity"].codes, packed.named["polarity"].values
    assert values is not None
    return dataclasses.replace(
        packed, named={**packed.named, "polarity": PackedArray(codes, values[:1])}
    ).content()


def objects(content: bytes) -> bytes:
    sink = io.BytesIO()
    with np.load(io.BytesIO(content)) as arrays:
        np.savez(sink, **{**arrays, "similarity": np.array([{}], dtype=object)})
    return sink.getvalue()


def without_names(content: bytes) -> bytes:
    sink = io.BytesIO()
    with np.load(io.BytesIO(content)) as arrays:
        np.savez(sink, **{name: arrays[name] for name in arrays if name != "names"})
    return sink.getvalue()


DAMAGES: dict[Callable[[bytes], bytes], str] = {
    cut: "",
    one_bit: "",
    objects: "",
    without_names: "'names' is missing;",
    other_scores: "scores of .* ledger",
    fewer_queries: "queries is 899; allowed: 900",
    values_missing: "polarity_values",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_rejected(damage: Callable[[bytes], bytes], run: Path) -> None:
    path = run / "scores" / "dev" / "baselines.npz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        InputError, match=rf"{path}: is damaged: .*({DAMAGES[damage]}).*remove the file"
    ) as error:
        load_query_scores(LocalFolder(run), load(run))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04" + bytes(40), json.dumps({}).encode()])
def test_other_files_are_rejected(content: bytes, run: Path) -> None:
    path = run / "scores" / "test" / "baselines.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"{path}: is damaged"):
        load_query_scores(LocalFolder(run), load(run))


def test_invalid_names_are_rejected() -> None:
    good: list[PointName] = [(0, 1, "plain", None)]
    packed = pack(good, np.ones((1, 3)), np.ones((1, 3)))
    for bad in itertools.chain(
        [(0, 1, 2, None)], [("0", 1, "plain", None)], [(0, 1, "plain", "x")], [(0, 1)]
    ):
        with pytest.raises(ValueError, match="names are invalid"):
            PackedScores.read(dataclasses.replace(packed, names=(bad,)).content())  # type: ignore[arg-type]
