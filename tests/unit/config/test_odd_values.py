"""Unusual keys and values in a file or an override: the sweep loads, or one line names the place."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.config.document import Document, parse_value
from raysweep.config.load import load
from raysweep.errors import InputError
from support.paths import SPACES
from support.sweep_files import MINIMAL, read

MORE = "first: [{loss: triplet}]\ntrackers: {tensorboard: {}}\nguards: {g: {kind: sts, pairs: pairs.tsv}}\n"
TEXTS = [path.read_text() for path in sorted(SPACES.glob("*.yaml"))] + [MINIMAL + MORE]
HUGE = "1" + "0" * 400  # larger than any float
KEYS = [
    *(
        "null",
        "~",
        "true",
        "on",
        "0.5",
        "1",
        "1e400",
        "-1",
        ".nan",
        "2024-01-01",
        "''",
        "a.b",
        "<<",
        "=",
        "!!binary aGk=",
    ),
    *("[1]", "{a: 1}", "*a", '"\\0"', "low", "choices", "x"),
]
VALUES = [
    *(
        "null",
        "true",
        "0.5",
        "-0.0",
        ".inf",
        ".nan",
        "1e400",
        "0",
        "-1",
        HUGE,
        "''",
        "2024-01-01",
        "2024-13-45",
        "1:30",
    ),
    *(
        "[]",
        "[[1], {a: 1}]",
        "{}",
        "{a: {b: 1}}",
        "{1: 2}",
        "{null: 1}",
        "{[1]: 2}",
        "0,5",
        "{<<: {1: 2}}",
        "x" * 300,
    ),
    *(
        "{low: 0,5, high: 1}",
        "{low: 1, high: .inf}",
        f"{{low: 0, high: {HUGE}}}",
        "{low: {a: 1}, high: [1]}",
    ),
    *(
        "{choices: 5}",
        "{choices: [null, 1]}",
        "{choices: [[1], {a: 1}]}",
        "{choices: {null: {}, 1: {}}}",
    ),
    *(
        "{choices: {1: {}, 1.0: {}, true: {}}}",
        "{choices: {.nan: {}, 2024-01-01: {}}}",
        "{choices: {0.5: {a: 1}}}",
    ),
    *("!!binary aGk=", "!!set {a, b}", "!!omap [a: 1]", '"a\\0b"', "'\\ud83d'"),
]
OVERRIDDEN = [
    *(
        "space",
        "space.loss",
        "space.loss.choices",
        "space.learning_rate",
        "space.learning_rate.low",
        "space.dropout",
    ),
    *(
        "budget",
        "budget.trials",
        "first",
        "guards",
        "trackers",
        "data",
        "data.train",
        "model",
        "seed",
        "name",
        "a",
    ),
]


def places(node: yaml.Node) -> list[tuple[bool, int, int]]:
    """Return where the keys and values below a node are in their text, and whether each is a key."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    items = node.value if isinstance(node, yaml.SequenceNode) else [value for _, value in pairs]
    ends = [(True, key) for key, _ in pairs] + [(False, item) for item in items]
    positions = [(is_key, inner.start_mark.index, inner.end_mark.index) for is_key, inner in ends]
    return positions + [place for item in items for place in places(item)]


PLACES = [(text, *place) for text in TEXTS for place in places(yaml.compose(text))]


def check(text: str, folder: Path, overrides: list[tuple[str, str]]) -> None:
    path = folder / "sweep.yaml"
    path.write_text(text)
    message = ""
    try:
        load(path, overrides)
    except InputError as error:
        message = str(error)
    assert "\n" not in message
    assert not message or message.startswith(("--", str(path)))


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(PLACES), st.sampled_from(KEYS), st.sampled_from(VALUES))
def test_unusual_keys_and_values_load_or_are_one_line(
    tmp_path_factory: pytest.TempPathFactory,
    place: tuple[str, bool, int, int],
    key: str,
    value: str,
) -> None:
    text, is_key, start, stop = place
    ending = "\n" if text[start:stop].endswith("\n") else ""
    check(
        text[:start] + (key if is_key else value) + ending + text[stop:],
        tmp_path_factory.mktemp("odd"),
        [],
    )


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(TEXTS), st.sampled_from(OVERRIDDEN), st.sampled_from(VALUES))
def test_unusual_overrides_load_or_are_one_line(
    tmp_path_factory: pytest.TempPathFactory, text: str, key: str, value: str
) -> None:
    check(text, tmp_path_factory.mktemp("odd"), [(key, value)])


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("{low: 0,00005, high: 0.0005}", "00005"),
        ("{low: 1e-5, high: 1e-4, on: true}", "on"),
        ("{low: 1e-5, high: 1e-4, 0.5: 1}", "0.5"),
        ("{low: 1e-5, high: 1e-4, null: 1}", "null"),
        ("{low: 1e-5, high: 1e-4, 2024-01-01: 1}", "2024-01-01"),
    ],
)
def test_unknown_keys_of_a_range_are_named_as_spelled(tmp_path: Path, value: str, key: str) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(MINIMAL.replace("{low: 1e-6, high: 1e-4, log: true}", value))
    with pytest.raises(InputError) as caught:
        load(path)
    place, problem = str(caught.value).split(f"space.learning_rate.{key}: ")
    line = 1 + MINIMAL.splitlines().index("  learning_rate: {low: 1e-6, high: 1e-4, log: true}")
    assert place == f"{path}: line {line}: "
    assert problem.startswith("unknown key; allowed: high, log, low")
    with pytest.raises(InputError) as caught:
        read(tmp_path, MINIMAL, space__learning_rate=value)
    assert str(caught.value) == f"--space.learning_rate.{key}: {problem}"


def test_only_choices_have_non_text_keys(tmp_path: Path) -> None:
    text = "a: {1: x, on: y}\nb: {choices: {16: {2: {}}, on: {}, 0.5: {}}}\nc: {<<: {3: x}}\n"
    expected = {
        "a": {"1": "x", "on": "y"},
        "b": {"choices": {16: {"2": {}}, True: {}, 0.5: {}}},
        "c": {"3": "x"},
    }
    (tmp_path / "keys.yaml").write_text(text)
    assert Document.read(tmp_path / "keys.yaml").values == parse_value(text) == expected
    assert parse_value("{16: {2: {}}}", is_choices=True) == {16: {"2": {}}}
    _, space = read(tmp_path, MINIMAL, space__batch_size__choices="{16: {}, 32: {}}")
    assert space.values("batch_size") == [16, 32]


def test_errors_name_the_line_of_a_numeric_choice(tmp_path: Path) -> None:
    text = MINIMAL + "  batch_size:\n    choices:\n      16: {}\n      0.5: {}\n"
    with pytest.raises(
        InputError,
        match=rf"line {len(text.splitlines())}: space.batch_size.choices.0.5 is 0.5; allowed: ",
    ):
        read(tmp_path, text)
