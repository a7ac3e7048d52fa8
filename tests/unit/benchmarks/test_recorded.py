"""The criterion for recordings, against values computed by hand."""

import os
from dataclasses import replace

import pytest

from benchmarks.recorded import TUNED_ALONE, Criterion, Recorded, located
from raysweep.replay.recordings import RecordedRung, RecordedSweep, RecordedTrial


def sweep(*points: tuple[float, float]) -> RecordedSweep:
    trials = [
        RecordedTrial(
            {"x": number},
            (RecordedRung(1, 1.0, ((p / 2, s / 2),)), RecordedRung(2, 2.0, ((p, s),))),
        )
        for number, (p, s) in enumerate(points)
    ]
    return RecordedSweep(tuple(trials), (0.0, 0.0))


@pytest.mark.parametrize(
    ("points", "near", "alone", "is_met"),
    [
        # alone 0.4, 0.4, 0.366, 0.366 and 0.395; together 0.8 * 0.5 + 0.61 * 0.1 + 0.5 * 0.2
        ([(0.8, 0.5), (0.5, 0.8), (0.61, 0.6), (0.61, 0.6), (0.79, 0.5)], 5, 0.4 / 0.561, True),
        ([(0.8, 0.5), (0.5, 0.8), (0.61, 0.6), (0.61, 0.6), (0.5, 0.5)], 4, 0.4 / 0.561, False),
        ([(0.9, 0.9), (0.9, 0.89), (0.89, 0.9), (0.9, 0.9), (0.88, 0.9)], 5, 1.0, False),
    ],
)
def test_recordings_count_with_five_near_the_best_and_no_dominant_one(
    points: list[tuple[float, float]], near: int, alone: float, is_met: bool
) -> None:
    found = Criterion.of(sweep(*points))
    assert (found.num_near_best, found.greatest_alone) == (near, pytest.approx(alone))
    assert found.is_met == is_met and ("it counts" in str(found)) == is_met


def test_the_digest_covers_everything_that_a_search_depends_on() -> None:
    one = sweep((0.5, 0.5), (0.6, 0.4))
    same = Recorded("b", sweep((0.5, 0.5), (0.6, 0.4)))
    others = [
        sweep((0.5, 0.5), (0.6, 0.41)),
        replace(one, reference_point=(0.1, 0.0)),
        replace(one, ranges=frozenset({"x"})),
        replace(one, trials=one.trials[:1]),
    ]
    assert Recorded("a", one).digest == same.digest
    assert len({Recorded("a", each).digest for each in [one, *others]}) == 5


def test_a_part_is_determined_by_its_seed() -> None:
    recorded = Recorded("a", sweep(*[(0.01 * number, 0.5) for number in range(1, 21)]))
    part = recorded.part(7, 0)
    assert len(part.sweep.trials) == 7 and all(
        trial in recorded.sweep.trials for trial in part.sweep.trials
    )
    assert part.sweep == recorded.part(7, 0).sweep != recorded.part(7, 1).sweep
    assert recorded.part(20, 0) is recorded and part.name == "a, 7 of 20"


def test_recordings_are_used_complete_and_as_tuned_encoders_alone() -> None:
    """The second has the tuned point of each rung, and the same reference point."""
    named = [name for name in located() if f"{os.sep}recordings{os.sep}" in name]
    assert named and named == [
        name for path in named[::2] for name in (path, f"{path}{TUNED_ALONE}")
    ]
    for recording, tuned_alone in zip(
        map(Recorded.of, named[::2]), map(Recorded.of, named[1::2]), strict=True
    ):
        assert tuned_alone.sweep.reference_point == recording.sweep.reference_point
        assert len(tuned_alone.sweep.trials) == len(recording.sweep.trials)
        for trial, tuned in zip(recording.sweep.trials, tuned_alone.sweep.trials, strict=True):
            assert [rung.points for rung in tuned.rungs] == [
                rung.points[:1] for rung in trial.rungs
            ]
