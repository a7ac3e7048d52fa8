"""All methods of an exported model use the prompt that its point was scored with."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from raysweep.data.prepared import Prepared
from raysweep.errors import InputError
from raysweep.evaluation.evaluation_set import EvaluationSet
from raysweep.export.export import export
from raysweep.report.summary import summary_of
from raysweep.results.ledger import point_name
from raysweep.storage.folder import as_folder
from support.encoders import write_with_prompts

Run = tuple[Path, Prepared, EvaluationSet]

PROMPTS = {"query": "query: ", "document": "passage: "}

TEXTS = ["a warm room", "Cold soup, and a spoon of it for everybody who had come late"]


@pytest.mark.parametrize(
    ("kind", "point"),
    [
        *(
            ("default", point)
            for point in ("0:1", "0:1:class_concat=0.1", "1:1:concat=0.3", "1:1:interpolate=0.4")
        ),
        ("query and document", "0:1"),
        ("query and document", "1:1:concat=0.3"),
        ("none", "0:1"),
    ],
)
def test_all_methods_put_the_prompt_of_the_sweep(
    prompted_run: Callable[[str], Run],
    tmp_path: Path,
    all_on_the_front: None,
    kind: str,
    point: str,
) -> None:
    """The prompt is the base model's default, not its prompts for queries and documents."""
    folder, prepared, _ = prompted_run(kind)
    base = SentenceTransformer(prepared.model["name"], device="cpu")
    prompt = base.prompts[base.default_prompt_name] if base.default_prompt_name else ""
    export(folder, point, tmp_path / "model")
    model = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    expected = model.encode([prompt + text for text in TEXTS], prompt="")
    for method in (model.encode, model.encode_query, model.encode_document):
        np.testing.assert_allclose(method(TEXTS), expected, atol=1e-5)
    assert model.prompts.get("sts") == base.prompts.get("sts"), "prompts of other names are kept"
    card = (tmp_path / "model" / "README.md").read_text()
    assert f"| prompt | {repr(prompt) if prompt else 'none'} |" in card
    if point == "0:1":
        trained = load_file(folder / "points" / point_name(0, 1) / "trained.safetensors")
        base.load_state_dict({**base.state_dict(), **trained})
        np.testing.assert_allclose(model.encode(TEXTS), base.encode(TEXTS), atol=1e-5)


def check_scores(run: Run, point: str, to: Path) -> SentenceTransformer:
    """Check that ``encode_query`` and ``encode_document`` of an exported point reproduce its scores; return the model."""
    folder, prepared, dev = run
    export(folder, point, to)
    model = SentenceTransformer(str(to), device="cpu")
    base = SentenceTransformer(prepared.model["name"], prompts=PROMPTS, device="cpu")
    queries, pool = (prepared.sentences.texts(ids) for ids in (dev.queries, dev.pool))
    products = model.similarity(model.encode_query(queries), model.encode_document(pool)).numpy()
    reference = base.similarity(base.encode_query(queries), base.encode_document(pool)).numpy()
    nearest = np.argsort(-products, axis=1, kind="stable")[:, : dev.k]
    same = dev.pool_labels[nearest] == dev.query_labels[:, None]
    cosines = np.take_along_axis(reference, nearest, axis=1)
    member = next(
        member.dev for member in summary_of(as_folder(folder)).members if member.dev.name == point
    )
    assert member["polarity"] == pytest.approx(same.mean(), abs=1e-4)
    assert member["similarity"] == pytest.approx(cosines.mean(), abs=1e-4)
    np.testing.assert_array_equal(model.encode(TEXTS), model.encode_document(TEXTS))
    return model


@pytest.mark.parametrize("point", ["0:1", "0:1:class_concat=1", "1:1:concat=0.3"])
def test_prompts_of_queries_and_documents_reproduce_the_scores(
    prompts_run: Run, tmp_path: Path, all_on_the_front: None, point: str
) -> None:
    check_scores(prompts_run, point, tmp_path / "model")
    assert (
        "| prompt | query: 'query: ', document: 'passage: ' |"
        in (tmp_path / "model" / "README.md").read_text()
    )


@pytest.mark.parametrize("point", ["1:1:query", "1:1:query_concat=0.3"])
def test_query_encoders_leave_documents_as_they_are(
    query_run: Run, tmp_path: Path, all_on_the_front: None, point: str
) -> None:
    model = check_scores(query_run, point, tmp_path / "model")
    base = SentenceTransformer(query_run[1].model["name"], prompts=PROMPTS, device="cpu")
    np.testing.assert_allclose(model.encode_document(TEXTS), base.encode_document(TEXTS), atol=1e-6)
    assert np.abs(model.encode_query(TEXTS) - base.encode_query(TEXTS)).max() > 1e-3
    with pytest.raises(InputError, match="--adapter: "):
        export(query_run[0], point, tmp_path / "adapter", as_adapter=True)


@pytest.mark.parametrize("point", ["1:1", "1:1:concat=0.3", "1:1:interpolate=0.4"])
def test_separate_encoders_reproduce_the_scores(
    separate_run: Run, tmp_path: Path, all_on_the_front: None, point: str
) -> None:
    folder, prepared, _ = separate_run
    model = check_scores(separate_run, point, tmp_path / "model")
    stored = load_file(folder / "points" / point_name(1, 1) / "trained.safetensors")
    of_queries = {
        name.removeprefix("query."): value
        for name, value in stored.items()
        if name.startswith("query.")
    }
    of_documents = {name: stored[name] for name in of_queries}
    assert len(stored) == 2 * len(of_queries)
    if point == "1:1":
        for weights, encode in (
            (of_queries, model.encode_query),
            (of_documents, model.encode_document),
        ):
            tuned = SentenceTransformer(prepared.model["name"], device="cpu")
            tuned.load_state_dict({**tuned.state_dict(), **weights})
            prompt = PROMPTS["query" if weights is of_queries else "document"]
            np.testing.assert_allclose(encode(TEXTS), tuned.encode(TEXTS, prompt=prompt), atol=1e-5)
    with pytest.raises(InputError, match="--adapter: "):
        export(folder, point, tmp_path / "adapter", as_adapter=True)


def test_documents_of_query_encoders_with_bf16_weights_are_exported_in_fp32(
    tmp_path: Path, tiny_encoder: str, write_run: Callable[..., Run], all_on_the_front: None
) -> None:
    model = json.dumps({"name": tiny_encoder, "weights": "bf16"})
    folder, *_ = write_run(tmp_path, model, {"freezing": "emb+B0"}, tower="query")
    for point in ("1:1:query", "1:1:query_concat=0.3"):
        export(folder, point, tmp_path / point)
        tensors = [load_file(file) for file in (tmp_path / point).rglob("model.safetensors")]
        assert len(tensors) > 1
        assert {tensor.dtype for by_name in tensors for tensor in by_name.values()} == {
            torch.float32
        }


def test_lengths_by_task_are_not_exported(
    tmp_path: Path, tiny_encoder: str, write_run: Callable[[Path, str], Run], all_on_the_front: None
) -> None:
    """``encode_query`` would truncate sentences that the sweep scored in full."""
    model = SentenceTransformer(
        write_with_prompts(tiny_encoder, tmp_path / "prompted", "default"), device="cpu"
    )
    model[0].query_length, model[0].document_length = 3, 5
    model.save(str(tmp_path / "model"), create_model_card=False)
    (tmp_path / "run").mkdir()
    folder, *_ = write_run(tmp_path / "run", str(tmp_path / "model"))
    export(folder, "1:1", tmp_path / "exported")
    exported = SentenceTransformer(str(tmp_path / "exported"), device="cpu")
    expected = exported.encode(TEXTS)
    for method in (exported.encode_query, exported.encode_document):
        np.testing.assert_allclose(method(TEXTS), expected, atol=1e-5)
