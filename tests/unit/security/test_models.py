"""Models whose files would run code when they are loaded."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.command_line import raysweep_here
from support.hostile import Canary, check_rejected

ROWS = "text,label\n" + "".join(
    f"{word} of the list,{number % 2}\n" for number, word in enumerate("abcdefgh")
)
MODULES = "sentence_transformers.sentence_transformer.modules"


def pickled_weights(model: Path, canary: Canary) -> None:
    next(model.rglob("model.safetensors")).unlink()
    (model / "pytorch_model.bin").write_bytes(canary.pickle)


def pickled_weights_in_parts(model: Path, canary: Canary) -> None:
    next(model.rglob("model.safetensors")).unlink()
    part = "pytorch_model-00001-of-00001.bin"
    (model / part).write_bytes(canary.pickle)
    (model / "pytorch_model.bin.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": {"x": part}})
    )


def pickled_weights_of_a_dense_module(model: Path, canary: Canary) -> None:
    add_dense(model, activation="torch.nn.modules.activation.Tanh")
    (model / "9_Dense" / "pytorch_model.bin").write_bytes(canary.pickle)


def pickle_named_safetensors(model: Path, canary: Canary) -> None:
    next(model.rglob("model.safetensors")).write_bytes(canary.pickle)


def huge_header_of_safetensors(model: Path, canary: Canary) -> None:
    next(model.rglob("model.safetensors")).write_bytes((2**62).to_bytes(8, "little") + b"{}")


def module_in_the_folder(model: Path, canary: Canary) -> None:
    (model / "evil.py").write_text(canary.source + "class Evil: pass\n")
    add_module(model, "evil.Evil")


def installed_module(model: Path, canary: Canary) -> None:
    (model.parent / "hostile_package.py").write_text(canary.source + "class Evil: pass\n")
    add_module(model, "hostile_package.Evil")


def module_behind_the_library(model: Path, canary: Canary) -> None:
    (model.parent / "hostile_package.py").write_text(canary.source)
    add_module(model, "sentence_transformers.util.misc.importlib.import_module")


def unpickler_behind_the_library(model: Path, canary: Canary) -> None:
    add_module(model, "sentence_transformers.base.model.pickle")
    (model / "9_Evil" / "config.json").write_bytes(canary.pickle)


def architecture_in_the_folder(model: Path, canary: Canary) -> None:
    (model / "evil.py").write_text(
        canary.source + "class EvilConfig: pass\nclass EvilModel: pass\n"
    )
    auto_map = {"AutoConfig": "evil.EvilConfig", "AutoModel": "evil.EvilModel"}
    change(model / "config.json", auto_map=auto_map, model_type="evil", architectures=["EvilModel"])


def nested_modules(model: Path, canary: Canary) -> None:
    (model / "modules.json").write_text("[" * 100_000)


def pickled_modules(model: Path, canary: Canary) -> None:
    (model / "modules.json").write_bytes(canary.pickle)


def tokenizer_in_the_folder(model: Path, canary: Canary) -> None:
    (model / "evil.py").write_text(canary.source + "class EvilTokenizer: pass\n")
    auto_map = {"AutoTokenizer": ["evil.EvilTokenizer", None]}
    change(model / "tokenizer_config.json", auto_map=auto_map, tokenizer_class="EvilTokenizer")


def activation_in_the_folder(model: Path, canary: Canary) -> None:
    (model.parent / "hostile_package.py").write_text(canary.source + "Evil = dict\n")
    add_dense(model, activation="hostile_package.Evil")


def add_module(model: Path, kind: str, name: str = "9_Evil") -> None:
    path = model / "modules.json"
    modules = json.loads(path.read_text())
    (model / name).mkdir()
    (model / name / "config.json").write_text("{}")
    path.write_text(
        json.dumps([*modules, {"idx": len(modules), "name": "9", "path": name, "type": kind}])
    )


def add_dense(model: Path, activation: str) -> None:
    add_module(model, f"{MODULES}.Dense", "9_Dense")
    values = {"in_features": 64, "out_features": 8, "bias": True, "activation_function": activation}
    (model / "9_Dense" / "config.json").write_text(json.dumps(values))


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


Tamper = Callable[[Path, Canary], None]

HOSTILE: dict[Tamper, str] = {
    pickled_weights: "pytorch_model.bin may execute code",
    pickled_weights_in_parts: "pytorch_model-00001-of-00001.bin may execute code",
    pickled_weights_of_a_dense_module: "9_Dense/pytorch_model.bin may execute code",
    pickle_named_safetensors: "header",
    huge_header_of_safetensors: "header",
    module_in_the_folder: "custom code",
    installed_module: "custom code",
    module_behind_the_library: "sentence_transformers.util.misc",
    unpickler_behind_the_library: "",
    architecture_in_the_folder: "custom code",
    nested_modules: "",
    pickled_modules: "",
}


@pytest.fixture
def model(tiny_encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a complete model, in a folder on Python's import path."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "rows.csv").write_text(ROWS)
    shutil.copytree(tiny_encoder, tmp_path / "model")
    return tmp_path / "model"


def evaluate(model: Path) -> Any:
    sources = ("--train", "rows.csv", "--test", "rows.csv", "--k", "2", "--format", "json")
    return raysweep_here(model.parent, "evaluate", "--model", str(model), *sources)


def test_unchanged_model_is_evaluated(model: Path) -> None:
    done = evaluate(model)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("tamper", HOSTILE, ids=lambda tamper: tamper.__name__)
def test_models_with_code_are_rejected(tamper: Tamper, model: Path, canary: Canary) -> None:
    tamper(model, canary)
    check_rejected(evaluate(model), f"model '{model}' cannot be loaded: ", HOSTILE[tamper])


@pytest.mark.parametrize(
    "tamper",
    [tokenizer_in_the_folder, activation_in_the_folder],
    ids=lambda tamper: tamper.__name__,
)
def test_unused_code_is_not_run(tamper: Tamper, model: Path, canary: Canary) -> None:
    tamper(model, canary)
    if tamper is activation_in_the_folder:
        add_weights(model / "9_Dense")
    done = evaluate(model)
    assert done.returncode in (0, 2), done.stderr
    assert len(done.stderr.splitlines()) <= 1


def add_weights(dense: Path) -> None:
    import torch
    from safetensors.torch import save_file

    save_file(
        {"linear.weight": torch.zeros(8, 64), "linear.bias": torch.ones(8)},
        dense / "model.safetensors",
    )
