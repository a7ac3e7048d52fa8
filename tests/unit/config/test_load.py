"""Overrides: sources and prompts as unquoted text or YAML."""

from pathlib import Path
from typing import Any

import pytest

from raysweep.config.load import load, parse_overrides
from raysweep.config.sweep import Prompts
from raysweep.errors import InputError
from support.sweep_files import MINIMAL, read


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.yaml"
    path.write_text(MINIMAL)
    return path


NAMES = [
    "*.csv",
    "#1.csv",
    "a #1.csv",
    "[v1].csv",
    "a: b.csv",
    "2024",
    "x",
    "- a.csv",
    "a.csv ",
    "{a",
    "{a,b}.csv",
    "\u00e9.csv",
]


@pytest.mark.parametrize("name", NAMES)
def test_paths_need_no_quotes(
    file: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(file, [("data.train", name)]).config.data.train == str(tmp_path / name)
    assert load(file, [("data.train", f'"{name}"')]).config.data.train == str(tmp_path / name)


@pytest.mark.parametrize("name", ["Body ", " Body", "#1", "a: b", "[v1]", "2024", "null value"])
@pytest.mark.parametrize("key", ["text_column", "label_column"])
def test_columns_need_no_quotes(file: Path, key: str, name: str) -> None:
    for value in (name, f'"{name}"'):
        assert getattr(load(file, [(f"data.{key}", value)]).config.data, key) == name


def test_lists_and_null_are_yaml(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = load(file, [("data.train", "[a.csv, '*.tsv']"), ("data.dev", "null")]).config.data
    assert (data.train, data.dev) == ([str(tmp_path / "a.csv"), str(tmp_path / "*.tsv")], None)


def test_mappings_are_not_sources(file: Path) -> None:
    with pytest.raises(
        InputError, match=r"--data.train is \{'a': 1\}; allowed: a source or a list of sources"
    ):
        load(file, [("data.train", "{a: 1}")])


PROMPTS = {
    "query: ": "query: ",
    "": "",
    " ": " ",
    "[query] ": "[query] ",
    "42": "42",
    "'query: '": "query: ",
    '"say: "': "say: ",
    "'tis: ": "'tis: ",
    "null": None,
}


@pytest.mark.parametrize("text", PROMPTS)
@pytest.mark.parametrize("key", ["model", "reference", "examples.encoder", "baselines.setfit"])
def test_prompts_need_no_quotes(file: Path, text: str, key: str) -> None:
    (override,) = parse_overrides([f"--{key}.prompt={text}"])
    encoder: Any = load(file, [(key, "demo"), override]).config
    for name in key.split("."):
        encoder = getattr(encoder, name)
    assert encoder.prompt == PROMPTS[text]
    assert parse_overrides([f"--{key}.prompt", text]) == [override]


def test_the_teacher_of_margin_mse_differs_from_the_model(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"reference is 'demo', the model itself; allowed with the loss margin_mse"
    ):
        read(tmp_path, MINIMAL, space__loss="margin_mse")
    with pytest.raises(InputError, match=r"^--reference is"):
        read(
            tmp_path,
            MINIMAL,
            space__loss="{choices: [triplet, margin_mse]}",
            reference="{name: demo, precision: bf16}",
        )
    config, _ = read(tmp_path, MINIMAL, space__loss="margin_mse", reference="intfloat/e5-small")
    assert config.reference_encoder.name == "intfloat/e5-small"


def test_limits_that_no_neighbor_meets_and_repeated_widths_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"min_similarity is 0.9; allowed: at most max_similarity \(0.5\)"
    ):
        read(tmp_path, MINIMAL, examples__min_similarity="0.9", examples__max_similarity="0.5")
    read(tmp_path, MINIMAL, examples__min_similarity="0.5", examples__max_similarity="0.5")
    with pytest.raises(InputError, match=r"truncate is \[192, 192\]; required: different widths"):
        read(tmp_path, MINIMAL, evaluation__points__truncate="[192, 192]")


@pytest.mark.parametrize(
    "overrides",
    [
        [("model.prompt.query", "query: "), ("model.prompt.document", "'passage: '")],
        [("model.prompt", "{query: 'query: ', document: 'passage: '}")],
    ],
)
def test_prompts_of_queries_and_documents(file: Path, overrides: list[tuple[str, str]]) -> None:
    config = load(file, [("model", "demo"), *overrides]).config
    assert config.model.prompt == Prompts(query="query: ", document="passage: ")


@pytest.mark.parametrize("text", ["{query: 5}", "[a]", "{queries: 'query: '}", "5"])
def test_other_prompts_are_rejected(file: Path, text: str) -> None:
    file.write_text(
        file.read_text().replace("model: demo", f"model: {{name: demo, prompt: {text}}}")
    )
    with pytest.raises(
        InputError,
        match=r"sweep.yaml: line \d+: model.prompt is .*; allowed: a string, or a mapping of query",
    ):
        load(file)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("space.loss", "3", r"^--space.loss is 3; allowed: triplet, .*package.module:Class"),
        ("space.loss", "null", r"^--space.loss is null; allowed: triplet"),
        ("space.loss", "mine:", r"^--space.loss is a mapping with the key 'mine'"),
        ("space.matryoshka", "192", r"^--space.matryoshka is 192; allowed: halves or .*'192'"),
        ("space.lora_rank", "4", r"^--space.lora_rank is 4, but adapter is none"),
        ("space.lora_rank", "0", r"^--space.lora_rank is 0; allowed: .* 1, .* 1024"),
        ("examples.k", "0", r"^--examples.k is 0; allowed: .* 1, .* 1024"),
        ("space.batch_size", "true", r"^--space.batch_size is true"),
        ("reference.prompt", "x", r"^--reference.name is missing"),
        ("evaluation.points.truncate", "192", r"truncate is 192; allowed: a list, such as \[192\]"),
    ],
)
def test_wrong_override_is_reported_as_it_is_typed(
    file: Path, key: str, value: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load(file, [(key, value)])
