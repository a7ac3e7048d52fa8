"""Listing the files of a source, and detecting files that changed after the listing."""

import http.client
import os
import re
from dataclasses import replace
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.data import sources
from raysweep.data.source_files import list_files
from raysweep.errors import InputError
from support.s3_server import BUCKET, S3Server

ROW = b"text,label\na,1\n"
FILES = [
    "b.csv",
    "a.csv",
    "c.jsonl",
    "_SUCCESS",
    "_x.csv",
    ".y.csv",
    "notes.txt",
    "deep/d.csv",
    "deep/_tmp/e.csv",
    "10.csv",
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b'{"text": "a", "label": 1}\n' if name.endswith("jsonl") else ROW)
    return root


def names(source: str | Path, root: str | Path) -> list[str]:
    return [file.name.removeprefix(f"{root}/") for file in list_files(str(source))]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", ["10.csv", "a.csv", "b.csv", "c.jsonl"]),
        ("/", ["10.csv", "a.csv", "b.csv", "c.jsonl"]),
        ("/a.csv", ["a.csv"]),
        ("/_x.csv", ["_x.csv"]),
        ("/*.csv", ["10.csv", "a.csv", "b.csv"]),
        ("/[!a].csv", ["b.csv"]),
        ("/?.csv", ["a.csv", "b.csv"]),
        ("/[ab]*", ["a.csv", "b.csv"]),
        ("/_*", ["_SUCCESS", "_x.csv"]),
        ("/**/*.csv", ["10.csv", "a.csv", "b.csv", "deep/d.csv"]),
        ("/*/*.csv", ["deep/d.csv"]),
        ("/d*/d.csv", ["deep/d.csv"]),
        ("/deep/_*/*.csv", ["deep/_tmp/e.csv"]),
    ],
)
def test_files_folders_and_globs_are_sorted_by_name(
    tree: Path, source: str, expected: list[str]
) -> None:
    assert names(f"{tree}{source}", tree) == expected
    assert names(f"file://{tree}{source}", f"file://{tree}") == expected
    memory = fsspec.filesystem("memory")
    if memory.exists("/tree"):
        memory.rm("/tree", recursive=True)
    memory.put(str(tree), "/tree", recursive=True)
    assert names(f"memory://tree{source}", "memory://tree") == expected


def test_links_to_folders_are_followed_without_loops_or_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("base/a.csv", "base/deep/d.csv", "elsewhere/e.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    base = tmp_path / "base"
    (base / "itself.csv").symlink_to(base / "itself.csv")
    (base / "dead.csv").symlink_to(base / "gone.csv")
    links = {
        "loop": base,
        "another": base,
        "deep/loop": base / "deep",
        "link": tmp_path / "elsewhere",
    }
    for link, target in links.items():
        (base / link).symlink_to(target)
    monkeypatch.chdir(base)
    assert [file.name for file in list_files("*.csv")] == ["a.csv"]
    for place in (str(base), f"file://{base}"):
        assert names(f"{place}/**/*.csv", place) == ["a.csv", "deep/d.csv", "link/e.csv"]
        assert names(f"{place}/*/*.csv", place) == [
            "another/a.csv",
            "deep/d.csv",
            "link/e.csv",
            "loop/a.csv",
        ]


def test_a_folder_comes_before_deeper_links_to_it(tmp_path: Path) -> None:
    for name in ("b/d/x.csv", "data/y/z.csv", "a/c/other.csv", ".git/x/other.csv", "odd**name.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "a/c/link").symlink_to(tmp_path / "b/d")
    (tmp_path / ".git/x/link").symlink_to(tmp_path / "data/y")
    place = str(tmp_path)
    files = ["a/c/other.csv", "b/d/x.csv", "data/y/z.csv", "odd**name.csv"]
    assert names(f"{place}/**/*.csv", place) == files
    assert names(f"{place}/**/d/*.csv", place) == ["b/d/x.csv"]
    assert [Path(file.name).name for file in list_files(f"{place}/odd**name.csv")] == [
        "odd**name.csv"
    ]


def test_file_name_that_is_not_utf8_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "ok.csv").write_text("text,label\nx,0\n")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.csv")).write_text("text,label\nx,0\n")
    with pytest.raises(InputError, match="cannot be read"):
        sources.pieces(str(tmp_path))


@pytest.mark.parametrize("source", ["x[z-a].csv", "~nobody-of-this-name/x.csv", "folder/x**.csv"])
def test_patterns_without_files_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=re.escape(source)):
        sources.pieces(source)


def test_uri_of_a_folder_may_contain_spaces(tmp_path: Path) -> None:
    folder = tmp_path / "two words"
    folder.mkdir()
    (folder / "a b%20.csv").write_text("text,label\nx,0\ny,1\n")
    for source in (
        f"file://{tmp_path}/two%20words",
        f"file://{tmp_path}/two%20words/*.csv",
        str(folder),
    ):
        batches = list(sources.read(source))
        assert [text for batch in batches for text in batch.texts] == ["x", "y"]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(["*", "?", "[ab]", "[!a]", "a", "b", ".csv", "deep/", "*/", "**/"]),
        min_size=1,
        max_size=5,
    )
)
def test_globs_match_like_pathlib(tree: Path, parts: list[str]) -> None:
    pattern = "".join(parts)
    if "**" in pattern.replace("/**/", "/").removeprefix("**/") or pattern.endswith("/"):
        return  # ** within a name, which pathlib rejects
    expected = {path.relative_to(tree).as_posix() for path in tree.glob(pattern) if path.is_file()}
    visible = sorted(
        name for name in expected if not any(part[0] in "_." for part in name.split("/"))
    )
    if visible:
        assert names(f"{tree}/{pattern}", tree) == visible
    else:
        with pytest.raises(InputError, match=re.escape(f"{tree}/{pattern}: ")):
            list_files(f"{tree}/{pattern}")


def test_existing_file_name_with_wildcards_is_not_a_glob(tmp_path: Path) -> None:
    (tmp_path / "what[1]?.csv").write_bytes(ROW)
    (tmp_path / "what1!.csv").write_bytes(ROW)
    assert names(tmp_path / "what[1]?.csv", tmp_path) == ["what[1]?.csv"]


def test_list_is_read_in_order_with_rows_counted_per_file(tmp_path: Path) -> None:
    for number, rows in enumerate(["a,x\nb,y\n", "", "c,x\nd,\n"]):
        (tmp_path / f"{number}.csv").write_text(f"text,label\n{rows}")
    first, empty, last = (str(tmp_path / f"{number}.csv") for number in range(3))
    texts = [batch.texts for batch in sources.read(["demo", first, empty, first])]
    assert texts[1:] == [["a", "b"], ["a", "b"]]
    with pytest.raises(InputError, match="2.csv: row 2: column 'label' is ''"):
        list(sources.read([first, last]))
    with pytest.raises(InputError, match="1.csv, .*1.csv: no rows"):
        list(sources.read([empty, empty]))
    assert sources.shown([first] * 5) == f"{first}, {first}, {first} and 2 more"


def test_glob_may_mix_formats_but_every_file_needs_both_columns(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_bytes(ROW)
    pq.write_table(
        pa.table({"label": [True, False], "more": [1, 2], "text": ["b", "c"]}),
        tmp_path / "2.parquet",
    )
    labels = [label for batch in sources.read(str(tmp_path / "*")) for label in batch.labels]
    assert labels == ["1", "true", "false"]
    pq.write_table(pa.table({"label": [1], "sentence": ["d"]}), tmp_path / "3.parquet")
    with pytest.raises(
        InputError, match="3.parquet: column 'text' is missing; columns: 'label', 'sentence'"
    ):
        list(sources.read(str(tmp_path / "*")))
    pq.write_table(pa.table({"label": [1], "text": [4.5]}), tmp_path / "3.parquet")
    with pytest.raises(
        InputError, match="3.parquet: row 1: column 'text' is 4.5 .float.; allowed: a string"
    ):
        list(sources.read(str(tmp_path)))
    (tmp_path / "notes.md").write_text("x")
    with pytest.raises(InputError, match=r"notes.md: suffix '.md' is unknown"):
        list(sources.read(str(tmp_path / "*")))


@pytest.mark.parametrize("when", ["listed", "read"])
@pytest.mark.parametrize("addition", ["z,1\n", '"half'])
def test_growing_file_is_rejected(tmp_path: Path, when: str, addition: str) -> None:
    path = tmp_path / "grows.csv"
    path.write_text("text,label\n" + "a,1\n" * 20_000)
    listed = sources.pieces(str(path))
    if when == "listed":
        path.write_text(path.read_text() + addition)

    def read_while_it_grows() -> None:
        for _ in sources.read_pieces(listed):
            path.write_text(path.read_text() + addition)

    with pytest.raises(InputError) as caught:
        read_while_it_grows()
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "changed" in message and "\n" not in message


def test_touched_or_removed_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(ROW)
    listed = sources.pieces(str(path))
    os.utime(path, ns=(0, 0))
    with pytest.raises(InputError, match="t.csv: .*changed"):
        sources.fingerprint(listed)
    path.unlink()
    with pytest.raises(InputError, match="t.csv: .*removed"):
        list(sources.read_pieces(listed))


def test_fingerprint_of_many_files_reads_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        (tmp_path / f"{name}.csv").write_bytes(ROW)

    def fail(*_: object) -> None:
        raise AssertionError("a file is read")

    monkeypatch.setattr(sources, "stored", fail)

    def fingerprint() -> str:
        return sources.fingerprint(sources.pieces(str(tmp_path)))

    before = fingerprint()
    assert fingerprint() == before
    os.utime(tmp_path / "b.csv", ns=(1, 1))
    touched = fingerprint()
    (tmp_path / "b.csv").write_bytes(ROW + b"b,2\n")
    os.utime(tmp_path / "b.csv", ns=(1, 1))
    grown = fingerprint()
    (tmp_path / "b.csv").rename(tmp_path / "c.csv")
    assert len({before, touched, grown, fingerprint()}) == 4


@given(
    num_rows=st.integers(0, 60),
    rows_per_group=st.integers(1, 20),
    share_bytes=st.integers(0, 3000),
    bad=st.integers(0),
)
@settings(max_examples=50, deadline=None)
def test_row_groups_of_a_large_file_are_shared_out(
    tmp_path_factory: pytest.TempPathFactory,
    num_rows: int,
    rows_per_group: int,
    share_bytes: int,
    bad: int,
) -> None:
    path = tmp_path_factory.mktemp("large") / "large.parquet"
    table = pa.table(
        {
            "text": pa.array([f"text {row}" for row in range(num_rows)], pa.string()),
            "label": [1] * num_rows,
        }
    )
    pq.write_table(table, path, row_group_size=rows_per_group)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "SHARE_BYTES", share_bytes)
        shares = sources.share_out(sources.pieces(str(path))[0])
    batches = [batch for share in shares for batch in sources.read_piece(share)]
    assert [text for batch in batches for text in batch.texts] == table.column("text").to_pylist()
    row = 1
    for batch in batches:
        assert batch.first_row == row
        row += len(batch.texts)
    num_groups = -(-num_rows // rows_per_group)
    if not share_bytes:
        assert len(shares) == max(1, num_groups)
    if bad < num_rows:
        texts = table.column("text").to_pylist()
        texts[bad] = ""
        pq.write_table(table.set_column(0, "text", [texts]), path, row_group_size=rows_per_group)
        (changed,) = sources.pieces(str(path))
        shares = [replace(share, file=changed.file) for share in shares]
        with pytest.raises(InputError, match=f"row {bad + 1}: column 'text' is ''"):
            list(sources.read_pieces(shares))


def test_other_files_are_not_shared_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SHARE_BYTES", 1)
    path = tmp_path / "t.csv"
    path.write_bytes(ROW)
    for name in (str(path), "demo"):
        (piece,) = sources.pieces(name)
        assert sources.share_out(piece) == [piece]
    broken = tmp_path / "t.parquet"
    broken.write_bytes(b"no table")
    with pytest.raises(InputError, match="t.parquet: cannot be read"):
        sources.share_out(sources.pieces(str(broken))[0])


def test_a_thousand_parquet_files_in_a_bucket(server: S3Server, tmp_path: Path) -> None:
    import boto3

    client = boto3.client("s3")
    for number in range(1000):
        table = pa.table({"text": [f"text {number} {row}" for row in range(3)], "label": [0, 1, 2]})
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        # faster than a client of S3
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request(
            "PUT", f"/{BUCKET}/many/part%20{number:04}.parquet", sink.getvalue().to_pybytes()
        )
        assert connection.getresponse().status == 200
        connection.close()
    client.put_object(Bucket=BUCKET, Key="many/_SUCCESS", Body=b"")
    listed = sources.pieces(server.uri("many"))
    assert [piece.name for piece in listed] == [
        server.uri("many", f"part {number:04}.parquet") for number in range(1000)
    ]
    options = f"?endpoint_override=127.0.0.1%3A{server.port}&scheme=http&region=us-east-1"
    with_options = sources.pieces(server.uri("many", f"part 00?[12].parquet{options}"))
    assert with_options[0].name == server.uri("many", f"part 0001.parquet{options}")
    assert len(with_options) == 20
    assert sources.fingerprint(listed[:2]) == sources.fingerprint(
        sources.pieces(server.uri("many", f"part 000[01]*{options}"))
    )
    texts = [text for batch in sources.read_pieces(with_options) for text in batch.texts]
    assert len(texts) == 60
    assert texts[:2] == ["text 1 0", "text 1 1"]
    client.put_object(Bucket=BUCKET, Key="many/part 0001.parquet", Body=b"now this")
    with pytest.raises(InputError, match="part 0001.parquet: .*changed"):
        list(sources.read_pieces(listed[:3]))
