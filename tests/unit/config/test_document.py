"""YAML documents: numbers as in YAML 1.2, overrides, aliases, and errors that name the place."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel

from raysweep.config.document import Document, parse_value
from raysweep.config.sweep import SHORT_FORMS, EncoderConfig, SweepConfig, TeacherConfig
from raysweep.config.watch import WatchConfig
from raysweep.errors import InputError
from support.sweep_files import MINIMAL, read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("-2.5E3", -2500.0),
        ("12", 12),
        ("1.", 1.0),
        ("none", "none"),
        ("1e5x", "1e5x"),
        ("true", True),
    ],
)
def test_numbers_are_parsed_as_in_yaml_1_2(text: str, value: object) -> None:
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_overrides_use_dotted_paths_and_errors_name_them(tmp_path: Path) -> None:
    config, _ = read(
        tmp_path,
        MINIMAL,
        budget__trials="7",
        data__test="test.csv",
        evaluation__rank_weights="linear",
    )
    assert (config.budget.trials, config.data.test, config.evaluation.rank_weights) == (
        7,
        str(Path("test.csv").absolute()),
        "linear",
    )
    with pytest.raises(InputError, match=r"--budget\.trials is 0; allowed: .*1"):
        read(tmp_path, MINIMAL, budget__trials="0")
    with pytest.raises(InputError, match=r"--budget is 5; allowed: a mapping of trials, rungs"):
        read(tmp_path, MINIMAL, budget="5")
    with pytest.raises(InputError, match=r"--model(\.name)? is empty; allowed: demo"):
        read(tmp_path, MINIMAL, model="''")
    for value in ("2", "1.5", "-1", "many"):
        with pytest.raises(
            InputError, match=rf"--resources\.gpus_per_trial is {value}; allowed: 0 to 1.*measured"
        ):
            read(tmp_path, MINIMAL, resources__gpus_per_trial=value)
    with pytest.raises(InputError, match=r"--storage\.max_gib is inf; allowed: .*finite"):
        read(tmp_path, MINIMAL, storage__max_gib=".inf")
    with pytest.raises(InputError, match=r"--space\.learning_rate: '\{low: 1' is not .*YAML"):
        read(tmp_path, MINIMAL, space__learning_rate="{low: 1")
    with pytest.raises(
        InputError, match=r"--budget\.trails: unknown key \(did you mean trials\?\)"
    ):
        read(tmp_path, MINIMAL, budget__trails="3")
    with pytest.raises(
        InputError,
        match=r"--trails: unknown key \(did you mean budget\.trials or replicates\.trials\?\)",
    ):
        read(tmp_path, MINIMAL, trails="3")
    with pytest.raises(
        InputError, match=r"--text_colum: unknown key \(did you mean data\.text_column\?\)"
    ):
        read(tmp_path, MINIMAL, text_colum="sentence")


def test_a_trial_uses_at_most_one_gpu(tmp_path: Path) -> None:
    for value in (0, 0.25, 1, "measured", None):
        text = "null" if value is None else str(value)
        config, _ = read(tmp_path, f"{MINIMAL}resources:\n  gpus_per_trial: {text}\n")
        assert config.resources.gpus_per_trial == value
    line = len(MINIMAL.splitlines()) + 2
    with pytest.raises(
        InputError, match=rf"sweep\.yaml: line {line}: resources\.gpus_per_trial is 2; allowed: "
    ):
        read(tmp_path, f"{MINIMAL}resources:\n  gpus_per_trial: 2\n")


def test_an_override_expands_a_short_form(tmp_path: Path) -> None:
    config, _ = read(
        tmp_path, MINIMAL, model="some/encoder", model__max_tokens="128", reference="demo"
    )
    assert (config.model.name, config.model.max_tokens) == ("some/encoder", 128)
    config, _ = read(tmp_path, MINIMAL, reference="demo", reference__prompt="'query: '")
    assert config.reference is not None and config.reference.prompt == "query: "
    with pytest.raises(
        InputError, match=r"--space\.learning_rate\.low: learning_rate is 1e-05; allowed: a mapping"
    ):
        read(tmp_path, MINIMAL, space__learning_rate="1e-5", space__learning_rate__low="1e-6")


def test_an_override_below_a_numeric_choice(tmp_path: Path) -> None:
    nested = "{choices: {16: {accumulation_steps: 2}, 32: {}}}"
    overrides = {
        "space__batch_size": nested,
        "space__batch_size__choices__16__accumulation_steps": "4",
    }
    _, space = read(tmp_path, MINIMAL, **overrides)
    assert space.values("batch_size") == [16, 32] and space.values("accumulation_steps") == [4]


def test_every_encoder_the_teacher_and_watched_data_have_a_short_form() -> None:
    def places(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        for name, field in model.model_fields.items():
            for kind in parts(field.annotation):
                if kind in (EncoderConfig, TeacherConfig, WatchConfig):
                    yield (*path, name)
                elif isinstance(kind, type) and issubclass(kind, BaseModel):
                    yield from places(kind, (*path, name))

    def parts(annotation: Any) -> Iterator[Any]:
        yield annotation
        if get_origin(annotation) is list:  # entries have no key
            return
        for part in get_args(annotation):
            yield from parts(part)

    assert sorted(places(SweepConfig)) == sorted(SHORT_FORMS)


def test_merged_mappings_are_read(tmp_path: Path) -> None:
    path = tmp_path / "merged.yaml"
    path.write_text("base: &base {a: 1, b: 2}\nother:\n  <<: *base\n  b: 3\n")
    document = Document.read(path)
    assert document.values["other"] == {"a": 1, "b": 3}
    assert str(document.error(("other", "a"), "wrong")) == f"{path}: line 2: other.a: wrong"


NESTED_ALIASES = {
    "lists": ("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n", "a{}: &a{} [{}]\n"),
    "mappings": ("a0: &a0 {x: 1, y: 2}\n", "a{}: &a{} {{{}}}\n"),
    "merges": ("a0: &a0 {x: 1, y: 2}\n", "a{}: &a{}\n  <<: [{}]\n"),
}


@pytest.mark.parametrize("kind", NESTED_ALIASES)
def test_nested_aliases_are_rejected_before_expansion(tmp_path: Path, kind: str) -> None:
    first, further = NESTED_ALIASES[kind]
    text = first
    for number in range(1, 12):
        aliases = [f"*a{number - 1}"] * 10
        inside = (
            ", ".join(f"k{i}: {alias}" for i, alias in enumerate(aliases))
            if kind == "mappings"
            else ", ".join(aliases)
        )
        text += further.format(number, number, inside)
    path = tmp_path / "aliases.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"aliases.yaml: has more than 100,000 values"):
        Document.read(path)


def test_yaml_tags_create_no_objects(tmp_path: Path) -> None:
    path = tmp_path / "object.yaml"
    canary = tmp_path / "canary"
    path.write_text(f"a: !!python/object/apply:os.mkdir [{canary}]\n")
    with pytest.raises(InputError, match="object.yaml: line 1: "):
        Document.read(path)
    assert not canary.exists()
