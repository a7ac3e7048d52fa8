"""Simulated searches: the configurations that replace proposals, and what the sampler learns."""

import math
from pathlib import Path

import numpy as np
import pytest
from optuna.trial import TrialState
from typer.testing import CliRunner

from raysweep.cli.commands import app
from raysweep.replay.recording_files import read
from raysweep.replay.recordings import RecordedSweep
from raysweep.replay.simulator import FreeTrials, Search, SearchSettings, budget_to, replay

RUNGS = 3
LOSSES = ("triplet", "softmax", "cosine_similarity")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> RecordedSweep:
    """Forty configurations by three rungs of two points, the margin recorded for triplet only."""
    random = np.random.default_rng(0)
    lines = [
        "trial,loss,margin,learning_rate,batch_size,examples_seen,seconds,kind,polarity,similarity"
    ]
    for trial in range(40):
        loss, rate = LOSSES[random.integers(3)], 10 ** random.uniform(-6, -3)
        margin = f"{10 ** random.uniform(-2, 0):.4f}" if loss == "triplet" else ""
        size = 16 * 2 ** random.integers(3)
        for rung in range(1, RUNGS + 1):
            gain = 0.2 * math.exp(-((math.log10(rate) + 4) ** 2)) * rung / RUNGS
            for share in (0.5, 1.0):
                cells = (
                    trial,
                    loss,
                    margin,
                    rate,
                    size,
                    256 * rung,
                    256 * rung,
                    f"point{share}",
                    0.6 + share * gain,
                    0.5 - share**2 * gain / 4,
                )
                lines.append(",".join(map(str, cells)))
    path = tmp_path_factory.mktemp("recording") / "recording.csv"
    path.write_text("\n".join(lines) + "\n")
    return read(path)


def nearest_trial(recording: RecordedSweep, values: dict[str, object], taken: set[int]) -> int:
    """Return the nearest trial by definition, one pair and one parameter at a time."""
    scales = {"learning_rate": math.log, "margin": math.log, "batch_size": float}

    def apart(name: str, one: object, other: object) -> float:
        if scale := scales.get(name):
            places = [
                scale(t.values[name]) for t in recording.trials if t.values.get(name) is not None
            ]
            if one is None or other is None:
                return 0.0 if one is other else 1.0
            return abs(scale(one) - scale(other)) / (max(places) - min(places))
        return float(one != other)

    scores = {}
    names = ("loss", "margin", "learning_rate", "batch_size")
    recorded = {
        name: [t.values[name] for t in recording.trials if name in t.values] for name in names
    }
    means = {
        name: np.mean([apart(name, a, b) for a in cells for b in cells])
        for name, cells in recorded.items()
    }
    for index, trial in enumerate(recording.trials):
        if index not in taken:
            scores[index] = sum(
                apart(name, values.get(name), trial.values.get(name)) / means[name]
                for name in names
            )
    return min(scores, key=lambda index: scores[index])


def test_a_proposal_takes_the_nearest_free_configuration(recording: RecordedSweep) -> None:
    random, free_trials, taken = np.random.default_rng(1), FreeTrials(recording), set[int]()
    for _ in range(len(recording.trials)):
        loss = LOSSES[random.integers(3)]
        values = {
            "loss": loss,
            "learning_rate": 10 ** random.uniform(-6, -3),
            "batch_size": int(16 * 2 ** random.integers(3)),
        }
        if loss == "triplet":
            values["margin"] = 10 ** random.uniform(-2, 0)
        nearest = nearest_trial(recording, values, taken)
        assert free_trials.take_nearest(values) == nearest
        taken.add(nearest)
    with pytest.raises(IndexError):
        free_trials.take_nearest({"loss": "softmax"})


def test_a_recorded_configuration_takes_itself(recording: RecordedSweep) -> None:
    free_trials = FreeTrials(recording)
    assert [free_trials.take_nearest(trial.values) for trial in recording.trials] == list(
        range(len(recording.trials))
    )


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("sampler", ["mfgp", "tpe", "random"])
def test_a_sampler_learns_the_recorded_configurations(
    recording: RecordedSweep, sampler: str, workers: int
) -> None:
    search = Search(recording, SearchSettings(sampler, "pareto", "area"), seed=0)
    steps = list(replay(recording, search, workers))
    recorded = sorted(
        str(sorted(recording.space.suggest_fixed(trial.values).params.items()))
        for trial in recording.trials
    )
    proposer = search.scheduler.proposer
    params = [proposer.known_trial(number).params for number in range(len(recording.trials))]
    assert sorted(str(sorted(each.items())) for each in params) == recorded
    finished = [
        trial
        for trial in proposer.views[0].storage.get_all_trials(0)
        if trial.state != TrialState.FAIL
    ]
    assert sorted(str(sorted(trial.params.items())) for trial in finished) == recorded
    for trial in search.scheduler.trials.values():
        assert dict(trial.values) == dict(
            recording.space.draw(recording.space.suggest_fixed(trial.values))
        )
    assert steps[-1].area <= recording.area
    assert budget_to(0.5, recording, steps) < math.inf


def test_a_replay_is_determined_by_its_seed(recording: RecordedSweep) -> None:
    def steps(seed: int) -> list[object]:
        return list(
            replay(recording, Search(recording, SearchSettings("mfgp", "growth", "area"), seed), 2)
        )

    assert steps(1) == steps(1) != steps(2)


def test_short_trials_are_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "short.csv"
    rows = [
        (trial, 10.0**-trial, step)
        for trial in (3, 4, 5, 6)
        for step in range(1, 4)
        if trial < 5 or step == 1
    ]
    lines = [
        f"{trial},{rate},{step},{step},plain,{0.5 + 0.01 * trial * step},0.{50 - step}"
        for trial, rate, step in rows
    ]
    path.write_text(
        "\n".join(["trial,learning_rate,examples_seen,seconds,kind,polarity,similarity", *lines])
    )
    done = CliRunner().invoke(app, ["replay", str(path), "--seeds", "1", "--sampler", "random"])
    assert done.exit_code == 0, done.output
    assert "short.csv: 2 of 4 recorded trials have fewer than 3 rungs" in capfd.readouterr().err
