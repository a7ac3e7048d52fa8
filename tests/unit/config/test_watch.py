"""The key ``watch`` of a sweep's file."""

from pathlib import Path

import pytest

from raysweep.config.load import load
from raysweep.config.sources import ThresholdsConfig
from raysweep.errors import InputError
from support.sweep_files import MINIMAL, read

WATCHED = "watch: {sources: [subj.csv], at: rung}\n"


def test_lists_are_short_for_sources(tmp_path: Path) -> None:
    config, _ = read(
        tmp_path,
        f"{MINIMAL}watch: [subj.csv, {{source: sts.tsv, thresholds: {{positive: 3, negative: 1.5}}}}]\n",
        watch__at="rung",
    )
    assert config.watch is not None
    first, second = config.watch.sources
    assert first.source == str(Path("subj.csv").absolute())
    assert first.max_queries == 1000
    assert (second.kind, second.thresholds) == (None, ThresholdsConfig(positive=3, negative=1.5))
    assert (config.watch.at, config.watch.target) == ("rung", None)


def test_nothing_is_watched_by_default(tmp_path: Path) -> None:
    config, _ = read(tmp_path, MINIMAL)
    assert config.watch is None


@pytest.mark.parametrize(
    ("watch", "problem"),
    [
        ("[]", "is []; required: a list of length 1"),
        ("[3]", "allowed: a source, or a mapping of source, kind"),
        ("[subj.csv, subj.csv]", "more than once"),
        ("[{source: subj.csv, kind: triples}]", "'scored_pairs'"),
        ("[{source: subj.csv, label: class}]", "label_column"),
        ("[{source: x.csv, columns: {pair: [one]}}]", "two different columns"),
        ("[{source: x.csv, thresholds: {negative: 5}}]", "below positive"),
        ("{sources: [x.csv], at: always}", "allowed: 'last' or 'rung'"),
        ("{target: x.csv}", "sources"),
    ],
)
def test_invalid_values_are_rejected(tmp_path: Path, watch: str, problem: str) -> None:
    with pytest.raises(InputError) as raised:
        read(tmp_path, f"{MINIMAL}watch: {watch}\n")
    message = str(raised.value)
    assert problem in message and "\n" not in message


def test_goal_leaves_only_the_points_that_have_it(tmp_path: Path) -> None:
    config, _ = read(tmp_path, MINIMAL + WATCHED, objective__similarity="watched")
    points = config.evaluation.points
    assert points.concat == points.query_concat == points.class_concat == []
    assert config.objective.goals == ("polarity", "watched")


def test_goal_survives_a_stored_configuration(tmp_path: Path) -> None:
    import yaml

    config, _ = read(tmp_path, MINIMAL + WATCHED, objective__similarity="watched")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    assert load(tmp_path / "config.yaml").config == config


@pytest.mark.parametrize(
    ("addition", "problem"),
    [
        ("", "objective.similarity is watched, but watch is null"),
        ("watch: [subj.csv]\n", "at: last"),
        (
            f"{WATCHED}evaluation: {{points: {{concat: [0.3]}}}}\n",
            "evaluation.points.concat is [0.3]",
        ),
    ],
)
def test_goal_that_is_not_measured_is_rejected(tmp_path: Path, addition: str, problem: str) -> None:
    with pytest.raises(InputError, match="allowed") as raised:
        read(tmp_path, MINIMAL + addition, objective__similarity="watched")
    assert problem in str(raised.value)
