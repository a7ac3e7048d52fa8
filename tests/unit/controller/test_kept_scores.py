"""Which per-query scores stay, by brute force, whatever the order, the resumes and the kills; on disk and in a bucket."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.controller import kept_files
from raysweep.controller.kept_files import KeptScores
from raysweep.controller.sweep import Sweep
from raysweep.metrics.pareto import non_dominated
from raysweep.metrics.scores import GOALS
from raysweep.results.ledger import Ledger, read_events
from raysweep.results.query_scores import PackedScores, PointName, name_of_point, rung_file
from raysweep.results.types import Point, point_of
from raysweep.storage.folder import Folder, LocalFolder, open_folder
from support import sweeps
from support.points import make_scores, with_spreads
from support.s3_server import S3Server

NUM_QUERIES = 36
KEYS = (("plain", None), ("concat", 0.3))
ORIGINALS = {5: 0, 6: 1, 7: 0}  # of replicates

# Few values, so that points are equal and raised ones fall on others; a rung is its trial and two points.
VALUES = st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 2), st.integers(0, 2))
RUNGS = st.lists(st.tuples(st.integers(0, 7), VALUES, VALUES), min_size=1, max_size=14)


def made(rungs: Sequence[tuple[int, Any, Any]]) -> list[list[Point]]:
    """Return the points of each rung, with standard errors in multiples of 1/24. Replicates follow the other trials."""
    steps: dict[int, int] = {}
    points_of_rungs = []
    for trial, *values in sorted(rungs, key=lambda rung: rung[0] in ORIGINALS):
        step = steps[trial] = steps.get(trial, 0) + 1
        points = [
            Point(
                trial,
                step,
                *key,
                "dev",
                8,
                make_scores(p / 8, s / 8, spreads=(p_spread / 4, s_spread / 4)),
            )
            for key, (p, s, p_spread, s_spread) in zip(KEYS, values, strict=True)
        ]
        points_of_rungs.append(points)
    return points_of_rungs


def front_of(points: Sequence[Point]) -> list[Point]:
    return [
        points[i]
        for i in non_dominated([(point["polarity"], point["similarity"]) for point in points])
    ]


def near_by_definition(points: Sequence[Point]) -> set[PointName]:
    """Return the points that are non-dominated with both scores three standard errors higher."""
    near = set()
    for point in points:
        # 3 / sqrt(36)
        raised = (
            point["polarity"] + point.std("polarity") / 2,
            point["similarity"] + point.std("similarity") / 2,
        )
        scores = [(other["polarity"], other["similarity"]) for other in points]
        if not any(p >= raised[0] and s >= raised[1] and (p, s) != raised for p, s in scores):
            near.add(name_of_point(point))
    return near


def kept_by_definition(points: Sequence[Point]) -> set[PointName]:
    near = near_by_definition(points)
    names = {name_of_point(point) for point in points}
    return near | {name for name in names if (ORIGINALS.get(name[0] or 0), *name[1:]) in near}


def write_rung(run: Folder, points: Sequence[Point]) -> None:
    """As a worker does before it reports a rung. The scores are of the point, so that two are not taken for each other."""
    values = [[hash(name_of_point(point)) % 997 / 1000] * NUM_QUERIES for point in points]
    named = {"polarity": np.array(values), "similarity": np.array(values)}
    packed = PackedScores.pack([name_of_point(point) for point in points], named)
    assert points[0].trial is not None and points[0].step is not None
    run.put(rung_file("dev", points[0].trial, points[0].step), packed.content())


def files(run: Folder) -> set[str]:
    return run.names("scores/dev")


def stored(run: Folder) -> list[PointName]:
    """Check the scores of every file and return its names."""
    names = []
    for content in run.read([f"scores/dev/{name}" for name in files(run)]):
        packed = PackedScores.read(content)
        names += packed.names
        expected = [hash(name) % 997 / 1000 for name in packed.names]
        np.testing.assert_allclose(packed.named["similarity"].unpack()[:, 0], expected, atol=2e-5)
        np.testing.assert_allclose(packed.named["polarity"].unpack()[:, -1], expected)
    return names


def rung_files(names: set[PointName]) -> set[str]:
    return {f"trial-{trial:04d}-step-{step:03d}.npz" for trial, step, _, _ in names}


def no_warning(text: str) -> None:
    raise AssertionError(text)


@settings(max_examples=25)
@given(RUNGS, st.integers(0, 14))
def test_kept_points_match_brute_force_after_each_rung_and_resume(
    rungs: list[tuple[int, Any, Any]], killed_after: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = LocalFolder(Path(folder))
        kept_scores = KeptScores(run, NUM_QUERIES, GOALS)
        seen: list[Point] = []
        for number, points in enumerate(made(rungs)):
            write_rung(run, points)
            seen += points
            if number == killed_after:  # between the ledger's event and what follows from it
                kept_scores = KeptScores(run, NUM_QUERIES, GOALS)
                kept_scores.restore(seen, front_of(seen), ORIGINALS)
            else:
                trial = points[0].trial
                kept_scores.take(
                    points, front_of(seen), ORIGINALS.get(trial if trial is not None else -1)
                )
            expected = kept_by_definition(seen)
            assert kept_scores.names == expected
            assert files(run) >= rung_files(expected)
            if number < killed_after:
                assert files(run) == rung_files(expected)
                assert kept_scores.num_bytes >= sum(
                    (run.path / "scores" / "dev" / name).stat().st_size - 1000
                    for name in files(run)
                )
        kept_scores.tidy()
        assert files(run) == rung_files(expected)
        kept_scores.pack(no_warning)
        assert len(files(run)) == 1
        assert sorted(map(str, stored(run))) == sorted(map(str, expected))


def invented(num_rungs: int, seed: int = 0) -> list[list[Point]]:
    rng = np.random.default_rng(seed)
    return made(
        [
            (int(rng.integers(0, 8)), *rng.integers(0, [9, 9, 3, 3], (2, 4)).tolist())
            for _ in range(num_rungs)
        ]
    )


def session(run: Folder, rungs: Sequence[list[Point]], before: Sequence[Point] = ()) -> KeptScores:
    """Report rungs one after the other, after restoring the earlier ones."""
    kept_scores = KeptScores(run, NUM_QUERIES, GOALS)
    if before:
        kept_scores.restore(before, front_of(before), ORIGINALS)
    seen = list(before)
    for points in rungs:
        write_rung(run, points)
        seen += points
        kept_scores.take(points, front_of(seen), ORIGINALS.get(points[0].trial or 0))
    return kept_scores


@pytest.fixture(params=["folder", "bucket"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param == "folder":
        return LocalFolder(tmp_path)
    server: S3Server = request.getfixturevalue("server")
    return open_folder(server.uri(tmp_path.name))


def test_successive_sessions_pack_their_scores(
    run: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_files, "PART_BYTES", 5 * 3 * NUM_QUERIES)  # about five points
    rungs = invented(30)
    half = [point for points in rungs[:15] for point in points]
    whole = [point for points in rungs for point in points]
    first = session(run, rungs[:15])
    # cut off between its scores and its report
    write_rung(run, made([(9, *[(0, 0, 0, 0)] * 2)])[0])
    first.tidy()
    first.pack(no_warning)
    assert sorted(map(str, stored(run))) == sorted(map(str, kept_by_definition(half)))
    packed = files(run)
    assert len(packed) > 1
    assert all(name.startswith("part-") for name in packed)
    first.pack(no_warning)
    assert files(run) == packed  # nothing has come, so nothing is written

    second = session(run, rungs[15:], half)
    write_rung(run, rungs[14])  # a trial that goes on repeats its last rung
    second.tidy()
    second.pack(no_warning)
    assert sorted(map(str, stored(run))) == sorted(map(str, kept_by_definition(whole)))


class Killed(BaseException):
    pass


def test_kill_while_packing_loses_and_duplicates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_files, "PART_BYTES", 5 * 3 * NUM_QUERIES)
    rungs = invented(20)
    half = [point for points in rungs[:10] for point in points]
    whole = [point for points in rungs for point in points]
    expected = kept_by_definition(whole)
    for survived in range(30):
        run = DyingFolder(tmp_path / str(survived), survived)
        session(run.whole, rungs[:10]).pack(no_warning)
        assert set(stored(run.whole)) == kept_by_definition(half)
        kept_scores = session(run.whole, rungs[10:], half)
        dying = KeptScores(run, NUM_QUERIES, GOALS)
        dying.restore(whole, front_of(whole), ORIGINALS)
        try:
            dying.pack(no_warning)
        except Killed:
            assert set(stored(run.whole)) >= expected
        else:
            break
        kept_scores.pack(no_warning)
        assert sorted(map(str, stored(run.whole))) == sorted(map(str, expected))
    assert survived > 5


class DyingFolder(LocalFolder):
    """A folder whose process is killed after N changes."""

    def __init__(self, path: Path, survived: int) -> None:
        super().__init__(path)
        object.__setattr__(self, "left", [survived])

    @property
    def whole(self) -> LocalFolder:
        return LocalFolder(self.path)

    def keep(self, name: str, content: bytes) -> None:
        self._count()
        super().keep(name, content)

    def remove(self, name: str) -> None:
        self._count()
        super().remove(name)

    def _count(self) -> None:
        left: list[int] = self.left  # type: ignore[attr-defined]
        left[0] -= 1
        if left[0] < 0:
            raise Killed


def test_damaged_file_is_kept(tmp_path: Path) -> None:
    run = LocalFolder(tmp_path)
    rungs = invented(10)
    kept_scores = session(run, rungs)
    damaged = sorted(files(run))[0]
    (tmp_path / "scores" / "dev" / damaged).write_bytes(b"nothing")
    kept_scores.pack(no_warning)
    assert damaged in files(run)
    assert len(files(run)) == 2


def played(folder: Path, *, finish: str | None = "completed") -> Sweep:
    sweep, _ = sweeps.make(folder, early_stopping__policy="none", budget__trials="8")
    for number, config in iter(sweep.assign, None):
        sweep.place(number)
        for step in range(1, 5):
            rung = sweeps.rung(config, step)
            rung["points"][0] |= {"polarity_std": 0.001, "similarity_std": 0.001}
            rung["points"][0]["similarity"] -= 0.002 * (number % 4)
            (point,) = [point_of(values, trial=number, step=step) for values in rung["points"]]
            write_rung(sweep.run, [point])
            if sweep.record_rung(number, rung):
                break
        sweep.release(number)
    if finish:
        sweep.finish(finish, "")
    else:
        sweep.ledger.close()
    return sweep


def points_in(folder: Path) -> Iterator[Point]:
    for event in read_events(folder / "ledger.jsonl"):
        yield from getattr(event, "points", ())


def near(folder: Path) -> set[PointName]:
    points = list(points_in(folder))
    lowered = [
        with_spreads(point, 2 * point.std("polarity"), 2 * point.std("similarity"))
        for point in points
    ]
    return near_by_definition(lowered)  # which has twice the root of queries


def test_sweep_packs_kept_scores_at_its_end(tmp_path: Path) -> None:
    for finish in ("completed", "interrupted", None):
        folder = tmp_path / str(finish)
        sweep = played(folder, finish=finish)
        expected = near(folder)
        assert 0 < len(expected) < len(list(points_in(folder)))
        assert {name_of_point(point) for point in sweep.front} <= expected
        assert sorted(map(str, stored(sweep.run))) == sorted(map(str, expected))
        assert (len(files(sweep.run)) == 1) == (finish == "completed")


def test_killed_sweep_resumes_with_its_kept_scores(tmp_path: Path) -> None:
    killed = played(tmp_path, finish=None)
    config, space = sweeps.settings(tmp_path, early_stopping__policy="none", budget__trials="8")
    resumed, _ = sweeps.assemble(config, space, Ledger(tmp_path))
    resumed.ledger.open()
    resumed.replay(list(read_events(tmp_path / "ledger.jsonl")))
    assert resumed.assign() is None
    resumed.finish("completed", "")
    assert sorted(map(str, stored(killed.run))) == sorted(map(str, near(tmp_path)))
    assert len(files(killed.run)) == 1
