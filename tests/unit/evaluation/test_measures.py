"""Measures of encoders on files, against brute force with sentence-transformers, and the command measure."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from raysweep.config.sweep import EncoderConfig
from raysweep.data import demo
from raysweep.data.relation_sources import RelationColumns, RelationSettings
from raysweep.errors import InputError
from raysweep.evaluation import measure_tables
from raysweep.evaluation.measures import MeasuredEncoder, measure
from support.command_line import raysweep_here
from support.displays import ListDisplay
from support.kinds import write_router

HALVES = RelationSettings(columns=RelationColumns(groups=("half",)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write retrieval data with a query that cannot be measured, and labeled pairs."""
    folder = tmp_path_factory.mktemp("relations")
    texts = [row.text for row in demo.generate()[0]]
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(5):
        query, *documents = rng.choice(texts, int(rng.integers(4, 12)), replace=False).tolist()
        rows.append(
            {
                "query": query,
                "positives": documents[:2],
                "negatives": [*documents[2:], documents[0]],
            }
        )
    rows.append({"query": texts[0], "positives": [texts[1]], "negatives": []})
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = [
        {"text1": texts[n], "text2": texts[n + 100], "label": n % 2, "half": "ab"[n >= 70]}
        for n in range(100)
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    return folder


@pytest.fixture(scope="module")
def tuned(tiny_encoder, tmp_path_factory):
    """Return the tiny encoder with other weights."""
    import torch

    model = SentenceTransformer(tiny_encoder, device="cpu")
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    folder = tmp_path_factory.mktemp("tuned") / "tuned"
    model.save(str(folder), create_model_card=False)
    return str(folder)


@cache
def without_normalization(model):
    encoder = SentenceTransformer(model, device="cpu")
    del encoder[-1]
    return encoder


def raw_embeddings(model, texts, **settings):
    """Return embeddings that are not normalized, by the library."""
    return without_normalization(model).encode(texts, **settings).astype(np.float64)


def closeness_of(geometry, query, documents):
    if geometry == "distance":
        return -np.linalg.norm(documents - query, axis=1)
    return documents @ query / np.linalg.norm(documents, axis=1) / np.linalg.norm(query)


def brute_force_pnd(model, path, geometry, query_prompt=None):
    """Return the PND as a mean over queries and over pairs; a document that is positive and negative is an error."""
    shares, errors, num_pairs = [], 0, 0
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if not row["negatives"]:
            continue
        (query,) = raw_embeddings(model, [row["query"]], prompt=query_prompt)
        closeness = closeness_of(
            geometry, query, raw_embeddings(model, row["positives"] + row["negatives"])
        )
        positives, negatives = np.split(closeness, [2])
        is_error = positives[:, None] <= negatives + 1e-9
        shares.append(is_error.mean())
        errors += is_error.sum()
        num_pairs += is_error.size
    return np.mean(shares), errors / num_pairs


def measured(model, path, base=None, query_prompt=None, settings=None):
    encoders = [
        None if name is None else MeasuredEncoder(EncoderConfig(name=name), query_prompt)
        for name in (model, base)
    ]
    return measure(*encoders, [str(path)], settings or RelationSettings(), ListDisplay())


@pytest.mark.parametrize("query_prompt", [None, "query: "])
def test_pnd_equals_brute_force(query_prompt, folder, tuned):
    path = folder / "queries.jsonl"
    (result,) = measured(tuned, path, query_prompt=query_prompt)
    assert len(result.skipped_groups) == 1
    for geometry in ("cosine", "distance"):
        by_query, by_pair = brute_force_pnd(tuned, path, geometry, query_prompt)
        errors = result.tuned[geometry].errors
        assert errors.mean_over_groups == pytest.approx(by_query)
        assert errors.over_pairs == pytest.approx(by_pair)


def test_pairs_are_measured_in_groups(folder, tuned):
    lines = (folder / "pairs.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    first = raw_embeddings(tuned, [row["text1"] for row in rows])
    second = raw_embeddings(tuned, [row["text2"] for row in rows])
    distances = np.linalg.norm(first - second, axis=1)
    (result,) = measured(tuned, folder / "pairs.jsonl", settings=HALVES)
    shares = result.tuned["distance"].errors.by_group
    for share, half in zip(shares, "ab", strict=True):
        positives = [
            distance
            for row, distance in zip(rows, distances, strict=True)
            if row["half"] == half and row["label"]
        ]
        negatives = [
            distance
            for row, distance in zip(rows, distances, strict=True)
            if row["half"] == half and not row["label"]
        ]
        assert share == pytest.approx(np.mean([a >= b for a in positives for b in negatives]))


def test_an_encoder_does_not_change_from_itself(folder, tiny_encoder):
    for name in ("queries.jsonl", "pairs.jsonl"):
        (result,) = measured(tiny_encoder, folder / name, base=tiny_encoder)
        for row in measure_tables.rows_of(result, seed=0):
            assert row.value == row.base
            assert row.verdict == "unchanged"
            assert row.improvement == 0


def test_small_groups_are_not_tested(folder, tiny_encoder, tuned):
    (result,) = measured(tuned, folder / "pairs.jsonl", base=tiny_encoder, settings=HALVES)
    rows = measure_tables.rows_of(result, seed=0)
    tested = {(row.measure, row.geometry): row.verdict is not None for row in rows}
    assert tested == {
        ("PND, a", "cosine"): True,
        ("PND, a", "distance"): True,
        ("PND, b", "cosine"): False,
        ("PND, b", "distance"): False,
    }


def test_a_router_embeds_queries_and_documents_differently(folder, tiny_encoder, tmp_path):
    router = write_router(tmp_path / "router", Path(tiny_encoder))
    (result,) = measured(router, folder / "queries.jsonl")
    model = SentenceTransformer(router, device="cpu")
    relations = result.relations
    queries = model.encode_query(relations.sentences).astype(np.float64)[relations.first]
    documents = model.encode_document(relations.sentences).astype(np.float64)[relations.second]
    cosines = (queries * documents).sum(axis=1)
    cosines /= np.linalg.norm(queries, axis=1) * np.linalg.norm(documents, axis=1)
    np.testing.assert_allclose(result.tuned["cosine"].closeness, cosines, atol=1e-5)


def test_command(folder, tiny_encoder, tuned):
    files = [str(folder / "queries.jsonl"), str(folder / "pairs.jsonl")]
    arguments = ["measure", tuned, "--base", tiny_encoder, "--data", *files]
    data = json.loads(raysweep_here(folder, *arguments, "--format", "json").stdout)
    assert [(entry["kind"], entry["groups"], entry["skipped"]) for entry in data] == [
        ("retrieval", 5, 1),
        ("pairs", 1, 0),
    ]
    assert len(data[0]["measures"]) == 14
    assert all(0 <= row["value"] <= 100 for entry in data for row in entry["measures"])
    lines = raysweep_here(folder, *arguments).stdout
    assert "nDCG@10" in lines
    single = raysweep_here(folder, "measure", tuned, "--data", files[0]).stdout
    assert "PND, by query" in single


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--kind", "queries"], "--kind is 'queries'; allowed"),
        (["--thresholds", "2,4"], "--thresholds is '2,4'; allowed"),
        (["--pair-columns", "a"], "--pair-columns is 'a'; allowed"),
        (["--retrieval-columns", "a,b,b"], "--retrieval-columns is 'a,b,b'; allowed"),
    ],
)
def test_invalid_options(arguments, problem, folder):
    result = raysweep_here(
        folder, "measure", "demo", "--data", str(folder / "queries.jsonl"), *arguments
    )
    assert problem in result.stderr
    assert result.returncode == 2


def test_missing_file(folder):
    with pytest.raises(InputError, match=r"none\.jsonl: no such file"):
        measured("demo", folder / "none.jsonl")


def test_data_without_a_measurable_group(tmp_path):
    queries = [
        {"query": "a", "positives": ["b"], "negatives": []},
        {"query": "c", "positives": [], "negatives": ["d"]},
    ]
    pairs = [{"text1": "a", "text2": "b", "label": n, "half": "ab"[n]} for n in (0, 1)]
    for name, rows in (("queries.jsonl", queries), ("pairs.jsonl", pairs)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        with pytest.raises(InputError, match=rf"^{name}: .*positives and negatives"):
            measured("demo", tmp_path / name, settings=HALVES)
