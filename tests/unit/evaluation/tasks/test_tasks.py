"""Specifications of tasks, their kinds, and tasks that cannot be scored."""

import re
from pathlib import Path

import pytest

from raysweep.data import hub
from raysweep.data.scored_pairs import PairColumns, ScoredPairs
from raysweep.errors import InputError
from raysweep.evaluation.tasks import tasks
from raysweep.evaluation.tasks.tasks import Classification, Columns, Labeled, Task


def write(path: Path, **counts: int) -> str:
    """Write a file with the given number of rows of each label."""
    rows = [
        f"{label} {number},{label}\n" for label, count in counts.items() for number in range(count)
    ]
    path.write_text("text,label\n" + "".join(rows))
    return str(path)


def read(*spelled: str, columns: Columns | None = None, num_folds: int = 3) -> list[Task]:
    return tasks.read(spelled, columns or Columns(), num_folds)


def test_task_is_a_file_or_a_split(tmp_path: Path) -> None:
    train, dev, test = (
        write(tmp_path / f"{name}.csv", a=12, b=10) for name in ("my.train", "dev", "test")
    )
    unsplit, split, three = read(train, f"A split-2={train},{test}", f"three={train},{dev},{test}")
    assert [task.name for task in (unsplit, split, three)] == ["my.train", "A split-2", "three"]
    for task, parts in (
        (unsplit, ["all"]),
        (split, ["train", "test"]),
        (three, ["train", "dev", "test"]),
    ):
        assert isinstance(task, Classification)
        assert list(task.parts) == list(task.sentences) == parts
        assert task.is_split == (len(parts) > 1)
        expected = [
            (f"{label} {number}", label)
            for label, count in (("a", 12), ("b", 10))
            for number in range(count)
        ]
        assert task.tested == Labeled(*map(list, zip(*expected, strict=True)))


def test_split_of_each_part() -> None:
    unsplit, split = read("whole=demo", "demo,demo")
    assert isinstance(unsplit, Classification) and isinstance(split, Classification)
    assert (unsplit.name, split.name) == ("whole", "demo")
    assert unsplit.tested == split.parts["train"] != split.tested


def test_path_may_contain_an_equals_sign(tmp_path: Path) -> None:
    (tmp_path / "year=2024").mkdir()
    (task,) = read(write(tmp_path / "year=2024" / "a=b.csv", a=10, b=10))
    assert task.name == "a=b"


@pytest.mark.parametrize("name", ["a.csv.gz", "a.CSV", "a.b.jsonl"])
def test_default_name_is_that_of_the_file(name: str, tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame({"text": [f"text {row}" for row in range(20)], "label": ["a", "b"] * 10})
    if "jsonl" in name:
        frame.to_json(tmp_path / name, orient="records", lines=True)
    else:
        frame.to_csv(tmp_path / name, index=False)
    (task,) = read(str(tmp_path / name))
    assert task.name == ("a.b" if "jsonl" in name else "a")


def test_kind_of_a_task_follows_from_its_columns(tmp_path: Path) -> None:
    (tmp_path / "2012.OnWN.test.tsv").write_text("1\ta\tb\n2\tc\td\n")
    (tmp_path / "pairs.csv").write_text("score,sentence1,sentence2\n1,a,b\n2,c,d\n")
    (tmp_path / "labeled.tsv").write_text("text\tlabel\n" + "a\tx\nb\ty\n" * 10)
    sts, pairs, labeled = read(
        *(str(tmp_path / name) for name in ("2012.OnWN.test.tsv", "pairs.csv", "labeled.tsv"))
    )
    assert (
        isinstance(sts, ScoredPairs)
        and isinstance(pairs, ScoredPairs)
        and isinstance(labeled, Classification)
    )
    assert (sts.name, pairs.gold.tolist()) == ("2012.OnWN.test", [1, 2])
    both = tmp_path / "both.csv"
    both.write_text("text,label,gold,p,q\n" + "a,x,1,c,d\nb,y,2,e,f\n" * 10)
    (task,) = read(str(both))
    assert isinstance(task, Classification)
    (task,) = read(str(both), columns=Columns("review", "label", PairColumns("gold", "p", "q")))
    assert isinstance(task, ScoredPairs)
    with pytest.raises(
        InputError, match=r"both.csv: has both the columns of labeled sentences \('text', 'label'\)"
    ):
        read(str(both), columns=Columns(pairs=PairColumns("gold", "p", "q")))


@pytest.mark.parametrize(
    ("part", "split"),
    [("train", "train"), ("dev", "validation"), ("test", "test"), ("all", "train")],
)
def test_hub_split_of_each_part(part: str, split: str) -> None:
    (piece,) = tasks.find_pieces("hub:stanfordnlp/sst2", part)
    assert piece.split == split
    (piece,) = tasks.find_pieces("hub:stanfordnlp/sst2:other", part)
    assert hub.parse(piece.name, piece.split)[-1] == "other"


@pytest.mark.parametrize("spelled", ["a.csv,", "x=,a.csv", "a,b,c,d"])
def test_invalid_specification_is_rejected(spelled: str) -> None:
    with pytest.raises(
        InputError, match=r"--tasks is '.*'; allowed: \[NAME=\]FILE, \[NAME=\]TRAIN,TEST or "
    ):
        read(spelled)


def test_unscorable_tasks_are_rejected(tmp_path: Path) -> None:
    def rejection(*spelled: str, num_folds: int = 10) -> str:
        with pytest.raises(InputError) as rejected:
            read(*spelled, num_folds=num_folds)
        return str(rejected.value)

    good = write(tmp_path / "good.csv", a=20, b=20)
    assert "gone.csv: no such file" in rejection(str(tmp_path / "gone.csv"))
    one_class = write(tmp_path / "one.csv", a=20)
    assert rejection(one_class).startswith("one: every row has the label 'a'")
    assert rejection(f"t={one_class},{good}").startswith("t: every row has the label 'a'")
    few = write(tmp_path / "few.csv", a=4, b=5)
    assert rejection(few) == "few: has 9 rows, fewer than the 10 folds"
    uneven = write(tmp_path / "uneven.csv", a=90, b=11, c=3)
    assert "'b', the second-largest class, has 11 rows; allowed: at least 12" in rejection(
        uneven, num_folds=12
    )
    read(uneven, num_folds=11)
    assert "'a', the second-largest class, has 4 rows; allowed: at least 5" in rejection(
        f"t={few},{good}"
    )
    read(f"t={few},{good},{good}")  # where C is chosen on dev
    other_class = write(tmp_path / "other.csv", c=5)
    assert (
        rejection(f"t={good},{other_class}")
        == "t: no row in test has a label that occurs in train; test has 'c'"
    )
    assert rejection(good, good).startswith("--tasks: 2 tasks are called 'good'; required: ")
    (tmp_path / "wrong.csv").write_text("sentence,class\na,b\n")
    assert re.search(
        r"wrong\.csv: .*'text', 'label'.*'score', 'sentence1', 'sentence2'.*the columns are 'sentence', 'class'",
        rejection(str(tmp_path / "wrong.csv")),
    )
    (tmp_path / "empty.tsv").write_text("")
    assert rejection(str(tmp_path / "empty.tsv")).endswith("empty.tsv: has no rows")
    (tmp_path / "sts.tsv").write_text("1\ta\tb\n2\tc\td\n")
    sts = str(tmp_path / "sts.tsv")
    assert rejection(f"{sts},{sts}").startswith(
        f"--tasks is '{sts},{sts}'; allowed for scored pairs: "
    )
