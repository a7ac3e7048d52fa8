"""Storage of weights within a limit."""

import itertools
from pathlib import Path

import pytest

from raysweep.controller.kept_files import WeightStore
from raysweep.metrics.pareto import hypervolume
from raysweep.metrics.scores import GOALS
from raysweep.results.ledger import checkpoint_folder, point_name
from raysweep.results.types import Point
from raysweep.storage.folder import LocalFolder
from support.points import make_scores

# By step: what a rung of one trial scored, two points each, all on the front.
FRONT = {
    1: [(0.5, 0.9), (0.52, 0.89)],
    2: [(0.7, 0.8), (0.71, 0.7)],
    3: [(0.8, 0.5)],
    4: [(0.9, 0.3), (0.91, 0.1)],
}


def points() -> list[Point]:
    return [
        Point(
            0,
            step,
            "plain" if i == 0 else "concat",
            None if i == 0 else 0.3,
            "dev",
            8,
            make_scores(p, s),
        )
        for step, scores in FRONT.items()
        for i, (p, s) in enumerate(scores)
    ]


def fill(folder: Path, size: int = 1000) -> Path:
    for step in FRONT:
        place = folder / "points" / point_name(0, step)
        place.mkdir(parents=True)
        (place / "trained.safetensors").write_bytes(bytes(size))
    return folder / "points"


def steps(folder: Path) -> set[int]:
    return {int(path.name[-3:]) for path in folder.iterdir()}


def test_only_dominated_reported_rungs_are_removed(tmp_path: Path) -> None:
    folder = fill(tmp_path)
    store = WeightStore(LocalFolder(folder.parent), 10**9, GOALS)
    front = [point for point in points() if point.step in (2, 4)]
    reported = [point for point in points() if point.step != 3]
    store.keep_only(front, among=reported)
    assert store.shrink(front, 0) == []
    assert steps(folder) == {2, 3, 4}
    store.keep_only(front)
    assert store.shrink(front, 0) == []
    assert steps(folder) == {2, 4}
    stored = store.select_stored(points())
    assert [point in stored for point in points()] == [False, False, True, True, False, True, True]


@pytest.mark.parametrize("room", [1, 2, 3, 4])
def test_shrink_minimizes_the_lost_hypervolume(room: int, tmp_path: Path) -> None:
    folder = fill(tmp_path)
    lost = WeightStore(LocalFolder(folder.parent), room * 1000, GOALS).shrink(points(), 0)
    assert len(steps(folder)) == room
    assert {point.step for point in lost} == set(FRONT) - steps(folder)
    if room == 3:  # the one whose loss costs least, by trying all
        volumes = {
            step: hypervolume([s for other in FRONT if other != step for s in FRONT[other]], (0, 0))
            for step in FRONT
        }
        assert lost[0].step == max(volumes, key=lambda step: volumes[step])


def test_other_files_count_toward_the_limit_and_one_rung_is_kept(tmp_path: Path) -> None:
    folder = fill(tmp_path)
    WeightStore(LocalFolder(folder.parent), 4000, GOALS).shrink(points(), 2000)
    assert len(steps(folder)) == 2
    WeightStore(LocalFolder(folder.parent), 1, GOALS).shrink(points(), 2000)
    assert len(steps(folder)) == 1


def test_checkpoint_bytes_of_given_trials(tmp_path: Path) -> None:
    for number, size in ((7, 2000), (70, 300), (10007, 40)):
        place = tmp_path / checkpoint_folder(number) / "000000064"
        place.mkdir(parents=True)
        (place / "tensors").write_bytes(bytes(size))
    store = WeightStore(LocalFolder(tmp_path), 1, GOALS)
    assert [store.checkpoint_bytes(trials) for trials in ([], [7], [70, 10007], [8, 70])] == [
        0,
        2000,
        340,
        300,
    ]


def test_shrink_is_independent_of_the_order_of_points(tmp_path: Path) -> None:
    left = set()
    for number, order in enumerate(itertools.permutations(points()[::2])):
        folder = fill(tmp_path / str(number))
        WeightStore(LocalFolder(folder.parent), 2000, GOALS).shrink(list(order), 0)
        left.add(frozenset(steps(folder)))
    assert len(left) == 1
