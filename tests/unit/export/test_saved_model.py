"""An export is written only if it embeds sentences like its point."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer

from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.export.export import export
from support.encoders import PROMPTED

Run = tuple[Path, Prepared, EvaluationSet]

Spoil = Callable[[Path], None]


def alter_a_weight(folder: Path) -> None:
    path = next(folder.rglob("model.safetensors"))
    weights = load_file(path)
    name = next(name for name in weights if name.endswith("layer.0.output.dense.weight"))
    weights[name][0] += 0.01
    save_file(weights, path, {"format": "pt"})


def lose_the_prompt(folder: Path) -> None:
    (folder / "config_sentence_transformers.json").unlink()


def compare_otherwise(folder: Path) -> None:
    model = SentenceTransformer(str(folder), device="cpu")
    model.similarity_fn_name = "manhattan"
    UNSPOILT(model, str(folder), create_model_card=False)


def truncate_otherwise(folder: Path) -> None:
    model = SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = 48
    UNSPOILT(model, str(folder), create_model_card=False)


def lose_the_weights(folder: Path) -> None:
    next(folder.rglob("model.safetensors")).unlink()


def put_numbers_out_of_range(folder: Path) -> None:
    path = next(folder.rglob("model.safetensors"))
    save_file(
        {name: torch.full_like(value, torch.nan) for name, value in load_file(path).items()},
        path,
        {"format": "pt"},
    )


def embed_queries_otherwise(folder: Path) -> None:
    model = SentenceTransformer(str(folder), device="cpu")
    model.prompts = {**model.prompts, "query": "another prompt: "}
    model.default_prompt_name = None
    UNSPOILT(model, str(folder), create_model_card=False)


UNSPOILT = SentenceTransformer.save

SPOILT: dict[Spoil, str] = {
    alter_a_weight: "encode of the saved model returns different vectors",
    truncate_otherwise: "encode of the saved model returns different vectors",
    put_numbers_out_of_range: "encode of the saved model returns different vectors",
    lose_the_weights: "the saved model cannot be loaded",
    compare_otherwise: "similarity_fn_name of the saved model is manhattan; allowed: (cosine|dot)",
    embed_queries_otherwise: "encode_query of the saved model returns different vectors",
}


def spoil_saves(monkeypatch: pytest.MonkeyPatch, spoil: Spoil) -> None:
    def save(self: Any, path: str, **settings: Any) -> None:
        UNSPOILT(self, path, **settings)
        spoil(Path(path))

    monkeypatch.setattr(SentenceTransformer, "save", save)


@pytest.mark.parametrize(
    ("spoil", "point"),
    [
        *(
            (alter_a_weight, point)
            for point in ("0:1:class_concat=0.1", "1:1", "1:1:concat=0.3", "1:1:interpolate=0.4")
        ),
        (truncate_otherwise, "1:1:concat=0.3"),
        (put_numbers_out_of_range, "1:1:interpolate=0.4"),
        (lose_the_weights, "0:1:class_concat=0.1"),
        (compare_otherwise, "1:1"),
        (compare_otherwise, "0:1:class_concat=0.1"),
        (embed_queries_otherwise, "1:1"),
        (embed_queries_otherwise, "1:1:concat=0.3"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_damaged_save_is_rejected_and_removed(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    all_on_the_front: None,
    spoil: Spoil,
    point: str,
) -> None:
    spoil_saves(monkeypatch, spoil)
    with pytest.raises(InputError, match=rf"exports/of/model: not written: {SPOILT[spoil]}"):
        export(run[0], point, tmp_path / "exports" / "of" / "model")
    assert not list(tmp_path.iterdir())
    (tmp_path / "exports").mkdir()
    with pytest.raises(InputError, match="not written"):
        export(run[0], point, tmp_path / "exports" / "model")
    assert not list((tmp_path / "exports").iterdir())


@pytest.mark.parametrize("kind", PROMPTED)
def test_save_that_loses_the_prompt_is_rejected(
    prompted_run: Callable[[str], Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    all_on_the_front: None,
    kind: str,
) -> None:
    folder, prepared, _ = prompted_run(kind)
    spoil_saves(monkeypatch, lose_the_prompt)
    if prepared.model["prompt"]:
        with pytest.raises(
            InputError, match="not written: encode of the saved model returns different vectors"
        ):
            export(folder, "1:1", tmp_path / "model")
        assert not list(tmp_path.iterdir())
    else:
        export(folder, "1:1", tmp_path / "model")


def test_export_without_artifacts(run: Run, tmp_path: Path, all_on_the_front: None) -> None:
    folder, prepared, _ = run
    names = ("ledger.jsonl", "points", "prepared.json", "config.yaml")
    (tmp_path / "run").mkdir()
    for name in names:
        (shutil.copytree if (folder / name).is_dir() else shutil.copy)(
            folder / name, tmp_path / "run" / name
        )
    place = str(prepared.sentences_artifact.location)
    text = (folder / "prepared.json").read_text().replace(place, str(tmp_path / "gone"))
    (tmp_path / "run" / "prepared.json").write_text(text)
    export(tmp_path / "run", "1:1", tmp_path / "model")
    assert (tmp_path / "model" / "modules.json").is_file()
