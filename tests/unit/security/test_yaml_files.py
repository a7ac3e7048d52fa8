"""Hostile sweep files and overrides."""

from pathlib import Path

import pytest

from raysweep.config.document import Document
from raysweep.errors import InputError
from support.command_line import raysweep_here
from support.hostile import Canary, check_rejected
from support.sweep_files import MINIMAL

LAUGHS = "\n".join(
    ["a0: &a0 [ha, ha]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12))]
)
MERGED_LAUGHS = "\n".join(
    [
        "a0: &a0 {ha: 1}",
        *(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 12)),
    ]
)
TOO_MANY = "has more than 100,000 values"
FILES = {
    "Python object": ("seed: CANARY", "line 13: could not determine a constructor"),
    "new Python object": (
        "seed: !!python/object/new:os.system [x]",
        "line 13: could not determine a constructor",
    ),
    "Python name": ("seed: !!python/name:os.system", "line 13: could not determine a constructor"),
    "Python module": (
        "seed: !!python/module:antigravity",
        "line 13: could not determine a constructor",
    ),
    "object as a key": ("? CANARY\n: 1", "line 13: could not determine a constructor"),
    "billion laughs": (LAUGHS, TOO_MANY),
    "billion laughs with merges": (MERGED_LAUGHS, TOO_MANY),
    "recursive alias": ("seed: &a [*a]", "nested too deeply, or an alias contains itself"),
    "deep nesting": (f"seed: {'[' * 5000}", "nested too deeply"),
    "null byte": ("seed: \0", "unacceptable character #x0000"),
    "invalid date": ("seed: 2024-99-99", "invalid value: month must be in 1..12"),
    "number with 5000 digits": (f"seed: {'1' * 5000}", "invalid value"),
    "invalid number": ("seed: !!int x", "invalid value"),
}
VALUES = {
    "relative path as a name": ("name: ../../outside", "; allowed: letters, digits"),
    "absolute path as a name": ("name: /etc", "; allowed: letters, digits"),
    "dots as a name": ("name: ..", "; allowed: letters, digits"),
    "name with a null byte": ('name: "a\\0b"', "; allowed: letters, digits"),
    "name with two lines": ('name: "a\\nb"', "; allowed: letters, digits"),
    "folder with a null byte": (
        'storage: {runs: "a\\0b"}',
        "storage.runs: 'a\\x00b' contains a null byte",
    ),
    "artifacts with a null byte": (
        'storage: {artifacts: "a\\0b"}',
        "storage.artifacts: 'a\\x00b' contains a null byte",
    ),
    "a source with a null byte": (
        'data: {train: "a\\0b.csv"}',
        "data.train: 'a\\x00b.csv' contains a null byte",
    ),
    "a model with a null byte": ('model: "a\\0b"', "model.name: 'a\\x00b' contains a null byte"),
    "function as a sampler": ("sampler: os:system", "sampler: 'os:system'"),
    "class as a sampler": ("sampler: subprocess:Popen", "sampler: 'subprocess:Popen'"),
    "sampler without a name": (
        "sampler: 'os:'",
        "sampler: 'os:' cannot be imported: AttributeError",
    ),
    "path as a sampler": (
        "sampler: '../../evil:Evil'",
        "sampler: '../../evil:Evil' cannot be imported",
    ),
    "sampler with a null byte": ('sampler: "a\\0b:C"', "cannot be imported"),
}


@pytest.mark.parametrize("name", FILES)
def test_invalid_yaml_is_rejected(name: str, tmp_path: Path, canary: Canary) -> None:
    content, problem = FILES[name]
    file = tmp_path / "hostile.yaml"
    file.write_text(f"{MINIMAL.rstrip()}\n{content.replace('CANARY', canary.yaml)}\n")
    check_rejected(raysweep_here(tmp_path, "validate", str(file)), f"{file}: ", problem)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "the file is empty"),
        ("[a]", "the top level is not a mapping"),
        ("a: 1\na: 2", "line 2: a is a duplicate key"),
    ],
)
def test_documents_of_another_shape_are_rejected(
    content: str, problem: str, tmp_path: Path
) -> None:
    file = tmp_path / "other.yaml"
    file.write_text(content)
    with pytest.raises(InputError) as caught:
        Document.read(file)
    assert str(caught.value).startswith(f"{file}: {problem}")


@pytest.mark.parametrize("name", VALUES)
def test_hostile_values_are_rejected(name: str, tmp_path: Path, canary: Canary) -> None:
    content, problem = VALUES[name]
    key = content.partition(":")[0]
    others = "".join(f"{line}\n" for line in MINIMAL.splitlines() if not line.startswith(f"{key}:"))
    if key == "data":
        others = others.replace("  train: train.csv\n", "")
    (tmp_path / "sweep.yaml").write_text(f"{others}{content}\n")
    check_rejected(raysweep_here(tmp_path, "validate", "sweep.yaml"), "sweep.yaml: line ", problem)
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.yaml"]


def test_hostile_overrides_are_rejected(tmp_path: Path, canary: Canary) -> None:
    done = raysweep_here(tmp_path, "validate", "smoke", "--seed", canary.yaml)
    check_rejected(done, "--seed: ", "is not a YAML value: could not determine a constructor")
    done = raysweep_here(tmp_path, "validate", "smoke", "--seed", "[" * 5000)
    check_rejected(done, "--seed: ", "nested too deeply")
