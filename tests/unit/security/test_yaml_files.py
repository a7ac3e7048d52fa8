"""A sweep's file and an override that come from an attacker."""

from pathlib import Path

import pytest

from raysweep.config.document import Document
from raysweep.errors import InputError
from support.command_line import raysweep_here
from support.hostile import Canary, check_refused
from support.sweep_files import MINIMAL

LAUGHS = "\n".join(["a0: &a0 [ha, ha]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12))])
MERGED_LAUGHS = "\n".join(
    ["a0: &a0 {ha: 1}", *(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 12))]
)
TOO_MANY = "has more than 100,000 values"
FILES = {
    "an object of Python": ("seed: CANARY", "line 13: could not determine a constructor for the tag"),
    "a new object of Python": ("seed: !!python/object/new:os.system [x]", "line 13: could not determine a constructor"),
    "a name of Python": ("seed: !!python/name:os.system", "line 13: could not determine a constructor"),
    "a module of Python": ("seed: !!python/module:antigravity", "line 13: could not determine a constructor"),
    "an object as a key": ("? CANARY\n: 1", "line 13: could not determine a constructor"),
    "billion laughs": (LAUGHS, TOO_MANY),
    "billion laughs that merge": (MERGED_LAUGHS, TOO_MANY),
    "a part of itself": ("seed: &a [*a]", "nested too deeply, or an alias contains itself"),
    "deep nesting": (f"seed: {'[' * 5000}", "nested too deeply"),
    "a null byte": ("seed: \0", "unacceptable character #x0000"),
    "a date that is none": ("seed: 2024-99-99", "invalid value: month must be in 1..12"),
    "a number of 5000 digits": (f"seed: {'1' * 5000}", "invalid value"),
    "a number that is none": ("seed: !!int x", "invalid value"),
}
VALUES = {
    "a name that leads out": ("name: ../../outside", "; allowed: letters, digits, '.', '_' and '-'"),
    "a name that is absolute": ("name: /etc", "; allowed: letters, digits, '.', '_' and '-'"),
    "a name of dots": ("name: ..", "; allowed: letters, digits, '.', '_' and '-'"),
    "a name with a null byte": ('name: "a\\0b"', "; allowed: letters, digits, '.', '_' and '-'"),
    "a name of two lines": ('name: "a\\nb"', "; allowed: letters, digits, '.', '_' and '-'"),
    "a folder with a null byte": ('storage: {runs: "a\\0b"}', "storage.runs: 'a\\x00b' has a null byte"),
    "artifacts with a null byte": ('storage: {artifacts: "a\\0b"}', "storage.artifacts: 'a\\x00b' has a null byte"),
    "a source with a null byte": ('data: {train: "a\\0b.csv"}', "data.train: 'a\\x00b.csv' has a null byte"),
    "a model with a null byte": ('model: "a\\0b"', "model.name: 'a\\x00b' has a null byte"),
    "a sampler that is a function": ("sampler: os:system", "sampler: 'os:system' is not a sampler; allowed: mfgp, "),
    "a sampler that is a class": ("sampler: subprocess:Popen", "sampler: 'subprocess:Popen' is not a sampler"),
    "a sampler of no name": ("sampler: 'os:'", "sampler: 'os:' cannot be imported: AttributeError"),
    "a sampler by its path": ("sampler: '../../evil:Evil'", "sampler: '../../evil:Evil' cannot be imported"),
    "a sampler with a null byte": ('sampler: "a\\0b:C"', "cannot be imported"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_plain_yaml_is_refused(name: str, tmp_path: Path, canary: Canary) -> None:
    content, said = FILES[name]
    file = tmp_path / "hostile.yaml"
    file.write_text(f"{MINIMAL.rstrip()}\n{content.replace('CANARY', canary.yaml)}\n")
    check_refused(raysweep_here(tmp_path, "validate", str(file)), f"{file}: ", said)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "the file is empty"),
        ("[a]", "the top level must be a mapping"),
        ("a: 1\na: 2", "line 2: a is a duplicate key"),
    ],
)
def test_a_file_of_another_form_is_refused_and_named_once(content: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_text(content)
    with pytest.raises(InputError) as caught:
        Document.read(file)
    assert str(caught.value).startswith(f"{file}: {said}")


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_reaches_out_is_refused(name: str, tmp_path: Path, canary: Canary) -> None:
    content, said = VALUES[name]
    key = content.partition(":")[0]
    others = "".join(f"{line}\n" for line in MINIMAL.splitlines() if not line.startswith(f"{key}:"))
    if key == "data":
        others = others.replace("  train: train.csv\n", "")
    (tmp_path / "sweep.yaml").write_text(f"{others}{content}\n")
    check_refused(raysweep_here(tmp_path, "validate", "sweep.yaml"), "sweep.yaml: line ", said)
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.yaml"]


def test_an_override_is_plain_too(tmp_path: Path, canary: Canary) -> None:
    done = raysweep_here(tmp_path, "validate", "smoke", "--seed", canary.yaml)
    check_refused(done, "--seed: ", "is not a YAML value: could not determine a constructor")
    done = raysweep_here(tmp_path, "validate", "smoke", "--seed", "[" * 5000)
    check_refused(done, "--seed: ", "nested too deeply")
