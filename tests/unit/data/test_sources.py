"""Reading sources, compared with pandas, csv and json; error messages name the place and the value."""

import bz2
import csv
import gzip
import hashlib
import io
import json
import os
import re
import time
import tracemalloc
import unicodedata
from decimal import Decimal
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.data import demo, files, hub, sources
from raysweep.errors import InputError
from raysweep.storage.bucket import StorageError

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(str.strip)
ODD_TEXTS = [
    "NA",
    "null",
    "nan",
    "None",
    " padded ",
    'she said "no"',
    "a,b",
    "two\nlines",
    "two\r\nlines",
    "été 😀",
    "1.0",
]


def rows(source, *args, **kwargs):
    batches = list(sources.read(str(source), *args, **kwargs))
    texts = [text for batch in batches for text in batch.texts]
    return texts, [label for batch in batches for label in batch.labels]


def fingerprint(source, *columns, split="train"):
    return sources.fingerprint(sources.pieces(source, split=split), *columns)


def put(folder, content, name="data.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def error_of(source, *args, **kwargs):
    with pytest.raises(InputError) as caught:
        rows(source, *args, **kwargs)
    return str(caught.value)


BREAKS = {"\t", "\n", "\r"}  # not allowed in quoted cells of a TSV file


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("t.csv", lambda f, p: f.to_csv(p, index=False)),
        ("t.csv.gz", lambda f, p: f.to_csv(p, index=False)),
        (
            "t.csv.zst",
            lambda f, p: p.write_bytes(
                pa.compress(f.to_csv(index=False).encode(), "zstd", asbytes=True)
            ),
        ),
        ("t.TSV", lambda f, p: f.to_csv(p, index=False, sep="\t")),
        ("t.jsonl", lambda f, p: f.to_json(p, orient="records", lines=True)),
        (
            "t.ndjson.bz2",
            lambda f, p: p.write_bytes(
                bz2.compress(f.to_json(orient="records", lines=True).encode())
            ),
        ),
        ("t.parquet", lambda f, p: f.to_parquet(p, index=False)),
    ],
)
def test_every_format_reads_back_what_pandas_wrote(tmp_path, name, write):
    path = tmp_path / name
    texts = [text for text in ODD_TEXTS if name != "t.TSV" or not set(text) & BREAKS]
    labels = [1.0, 0.0, *[1.0] * (len(texts) - 2)]
    write(pd.DataFrame({"id": range(len(texts)), "label": labels, "text": texts}), path)
    assert rows(path) == (texts, ["1", "0", *["1"] * (len(texts) - 2)])


@pytest.mark.parametrize(
    ("name", "lines", "expected"),
    [
        (
            "t.tsv",
            ['"Great" is not the word\t0'],
            "row 1: a cell continues after its closing quote",
        ),
        ("t.csv", ['"Great" is not the word,0'], "row 1: a cell continues after its closing quote"),
        (
            "t.tsv",
            ["dull\t0", '"loved it\t1', 'he said"\t1'],
            "row 2 (ends on line 4) has a line break or a tab inside quotes",
        ),
        (
            "t.tsv",
            ['"loved it\t1', "dull\t0"],
            "row 1: a quote is still open at the end of the file",
        ),
    ],
)
def test_quote_at_the_start_of_a_text_swallows_no_rows(tmp_path, name, lines, expected):
    header = "text\tlabel" if name == "t.tsv" else "text,label"
    assert expected in error_of(put(tmp_path, "\n".join([header, *lines]), name))


HEADERS = {
    "same": "text,label",
    "byte order mark": "\ufefftext,label",
    "mark and quotes": '\ufeff"text","label"',
    "other order": "label,text",
    "spaces": " text , label ",
    "quotes": '"text","label"',
}


@pytest.mark.parametrize("again", HEADERS.values(), ids=HEADERS)
@pytest.mark.parametrize(
    ("name", "delimiter"), [("t.csv", ","), ("t.tsv", "\t"), ("t.csv.gz", ",")]
)
def test_repeated_header_is_rejected(tmp_path, again, name, delimiter):
    content = "text,label\na,1\nb,0\n" + again + "\nc,1\n"
    data = content.replace(",", delimiter).encode()
    path = put(tmp_path, gzip.compress(data) if name.endswith(".gz") else data, name)
    assert error_of(path).startswith(f"{path}: row 3 (ends on line 4) repeats the header")


def test_repeated_header_with_other_columns_is_rejected(tmp_path):
    path = put(
        tmp_path, "id,sentence,class,note\n1,a,x,\n2,b,y,\nnumber,sentence,class,comment\n1,c,x,\n"
    )
    assert "row 3 (ends on line 4) repeats the header" in error_of(path, "sentence", "class")


def test_text_may_equal_a_column_name(tmp_path):
    path = put(tmp_path, "text,label,id\ntext,1,id\nlabel,text,7\ntext,0,label\nlabel,1,text\n")
    assert rows(path) == (["text", "label", "text", "label"], ["1", "text", "0", "1"])
    (piece,) = sources.pieces(str(path))
    assert list(sources.read_values(piece, ("text",))) == [(["text", "label", "text", "label"],)]
    (piece,) = sources.pieces(str(put(tmp_path, "text\na\ntext\n", "one.csv")))
    assert list(sources.read_values(piece, ("text",))) == [(["a", "text"],)]


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(TEXTS, st.sampled_from("ab")), min_size=1),
    st.sampled_from([",", "\t"]),
    st.booleans(),
)
def test_csv_reads_back_any_text(tmp_path_factory, written, delimiter, quote_all):
    if delimiter == "\t":
        written = [
            (text.translate(dict.fromkeys(map(ord, BREAKS), "x")), label) for text, label in written
        ]
    buffer = io.StringIO()
    writer = csv.writer(
        buffer, delimiter=delimiter, quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL
    )
    writer.writerows([("text", "label"), *written])
    name = {",": "t.csv", "\t": "t.tsv"}[delimiter]
    assert rows(put(tmp_path_factory.mktemp("csv"), buffer.getvalue(), name)) == tuple(
        map(list, zip(*written, strict=True))
    )


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(TEXTS, st.integers()), min_size=1), st.booleans())
def test_json_lines_read_back_any_text(tmp_path_factory, written, ascii):
    lines = [
        json.dumps({"text": text, "label": label}, ensure_ascii=ascii) for text, label in written
    ]
    path = put(tmp_path_factory.mktemp("jsonl"), "\n".join(lines), "t.jsonl")
    assert rows(path) == ([text for text, _ in written], [str(label) for _, label in written])


@pytest.mark.parametrize(
    "content",
    [
        b'text,label\na "b" c,1\n',
        b"text,label\n\n   \nx,1\n\n",
        b"\n\ntext,label\nx,1",
        b'text,label\r\n"a\r\nb",1\r\nq,2\r\n',
        b"text,label\ra,1\rb,2\r",
        b'\xef\xbb\xbf"text",label\na,1\n',
        b"label,other,text\n1,,  spaced \n",
        b'text,label\n"a ""b"" c",1\n"""",2\n',
    ],
)
def test_csv_quirks_match_pandas(tmp_path, content):
    frame = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
    assert rows(put(tmp_path, content)) == (frame["text"].tolist(), frame["label"].tolist())


def test_rows_are_numbered_across_batches(tmp_path):
    count = 2 * files.BLOCK_ROWS + 3
    path = put(tmp_path, "text,label\n" + "".join(f"t{i},{i % 2}\n" for i in range(count)))
    batches = list(sources.read(str(path)))
    assert [batch.first_row for batch in batches] == [
        1,
        files.BLOCK_ROWS + 1,
        2 * files.BLOCK_ROWS + 1,
    ]
    assert sum(len(batch.texts) for batch in batches) == count
    assert batches[1].texts[0] == f"t{files.BLOCK_ROWS}"


def test_memory_does_not_grow_with_the_file(tmp_path):
    small, large = (
        put(tmp_path, "text,label\n" + f"{'x' * 500},1\n" * n, f"{n}.csv") for n in (20_000, 80_000)
    )

    def peak(path):
        tracemalloc.start()
        for _ in sources.read(str(path)):
            pass
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    assert peak(large) < 1.1 * peak(small) < large.stat().st_size / 2


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([1, 0, -3], ["1", "0", "-3"]),
        ([1.0, -0.0, 2.5], ["1", "0", "2.5"]),
        ([1e-5, 0.1, 2.0**60], ["0.00001", "0.1", str(2**60)]),
        (np.array([0.1, -0.0, 3, 1e-5], np.float32), ["0.1", "0", "3", "0.00001"]),
        (np.array([0.1, -0.0, 3], np.float16), ["0.1", "0", "3"]),
        (pd.Categorical(np.array([0.1, 0.2], np.float32)), ["0.1", "0.2"]),
        (
            ["-0", "-0.0", "1.", ".5", "-.5", "1E-5", "1e+2", "1e+999"],
            ["0", "0", "1", "0.5", "-0.5", "0.00001", "100", "1e+999"],
        ),
        (["007", "1.10", "e5", "--1", "0e1", "1e5"], ["007", "1.10", "e5", "--1", "0e1", "1e5"]),
        (["cafe\u0301", "\u00a0caf\u00e9\u200b", "\ufeffcaf\u00e9 "], ["caf\u00e9"] * 3),
        ([True, False], ["true", "false"]),
        (
            [" spam ", "True", "2.0", "2.50", "+1", "-1.0", "1+"],
            ["spam", "true", "2", "2.50", "1", "-1", "1+"],
        ),
        ([Decimal("1.00"), Decimal("0.50")], ["1", "0.50"]),
        (pd.Categorical(["x", "y", "x"]), ["x", "y", "x"]),
        (np.array([3, 200], np.uint8), ["3", "200"]),
    ],
)
def test_labels_of_any_type_become_strings(tmp_path, values, names):
    path = tmp_path / "t.parquet"
    pd.DataFrame({"text": [f"t{i}" for i in range(len(values))], "label": values}).to_parquet(path)
    assert rows(path)[1] == names


@settings(deadline=None, max_examples=200)
@given(st.text(), st.sampled_from(["NFC", "NFD"]), st.sampled_from(["", " ", "\u00a0", "\n"]))
def test_label_name_does_not_depend_on_unicode_form(text, form, space):
    def label(spelling):
        return sources.make_batch("t", 1, ["a"], [spelling], ("text", "label")).labels[0]

    try:
        name = label(unicodedata.normalize("NFC", text))
    except InputError:
        return
    assert name == unicodedata.normalize("NFC", name) == label(name) == name.strip()
    assert label(space + unicodedata.normalize(form, text) + space) == name


@pytest.mark.parametrize(
    ("labels", "counts"),
    [
        ([("a", "a"), ("b", "b"), ("a", "a")], ()),
        ([("a", "a"), ("a", " a"), ("b", "b")], (2, 1)),
        ([("0", "0"), ("0", "-0.0"), ("1", "1"), ("0", "0.0"), ("1", "1.0"), ("2", "2")], (5, 2)),
    ],
)
def test_merged_labels_are_counted(labels, counts):
    message = sources.describe_merged_labels(labels)
    assert tuple(map(int, re.findall(r"\b(\d+) (?:spellings|labels?)\b", message))) == counts
    assert bool(message) == bool(counts)


def test_labels_do_not_depend_on_the_format(tmp_path):
    values = [True, 1.0, 1, "x "]
    lines = [json.dumps({"text": "t", "label": value}) for value in values]
    assert rows(put(tmp_path, "\n".join(lines), "t.jsonl"))[1] == ["true", "1", "1", "x"]
    assert rows(put(tmp_path, "text,label\n" + "".join(f"t,{value}\n" for value in values)))[1] == [
        "true",
        "1",
        "1",
        "x",
    ]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("t.csv", "", "is empty"),
        ("t.csv", "text,label\n\n", "no rows"),
        ("t.jsonl", "\n\n", "no rows"),
        (
            "t.csv",
            "sentence,label\na,1\n",
            "column 'text' is missing; columns: 'sentence', 'label'",
        ),
        ("t.csv", "text,text,label\na,b,1\n", "column 'text' occurs more than once"),
        ("t.csv", "text,label\na,1\n,1\n", "row 2: column 'text' is ''"),
        ("t.csv", "text,label\na,1\n \t ,1\n", "row 2: column 'text' is ' \\t '"),
        ("t.csv", "text,label\na,\n", "row 1: column 'label' is ''"),
        (
            "t.csv",
            "text,label\na,1\n\nb,1,2\n",
            "row 2 (ends on line 4) has 3 fields; the header has 2",
        ),
        (
            "t.csv",
            'text,label\na,1\n"b,1\nc,2\n',
            "row 2: a quote is still open at the end of the file",
        ),
        ("t.csv", 'text,label\na,1\nb,"1\n', "row 2: a quote is still open at the end of the file"),
        (
            "t.csv",
            'text,label\n"a' + "b" * 140_000,
            "row 1: field larger than field limit (131072); is a quote left open",
        ),
        ("t.csv", b"text,label\na,1\ncaf\xe9,1\n", "line 3: byte 0xe9 is not UTF-8"),
        ("t.csv", b"t\xe9xt,label\na,1\n", "line 1: byte 0xe9 is not UTF-8"),
        ("t.csv", "text,label\na,1\n".encode("utf-16"), "line 1: byte 0xff is not UTF-8"),
        (
            "t.jsonl",
            b'{"text": "a", "label": 1}\n\n{"text": "\xff", "label": 1}',
            "line 3: byte 0xff is not UTF-8",
        ),
        ("t.jsonl", '{"text": "a", "label": 1}\n{"text": "b", "lab', "line 2: invalid JSON"),
        ("t.jsonl", '[\n{"text": "a", "label": 1}]', "line 1: invalid JSON"),
        ("t.jsonl", '["a", 1]', 'line 1: the JSON value is ["a", 1]; allowed: an object'),
        (
            "t.jsonl",
            '{"text": "a", "label": 1}\n{"text": "b"}',
            "line 2: column 'label' is missing; columns: 'text'",
        ),
        ("t.jsonl", '{"text": null, "label": 1}', "row 1: column 'text' is missing"),
        ("t.jsonl", '{"text": NaN, "label": 1}', "row 1: column 'text' is missing"),
        (
            "t.jsonl",
            '{"text": ["a"], "label": 1}',
            "row 1: column 'text' is ['a'] (list); allowed: a string",
        ),
        (
            "t.jsonl",
            '{"text": "a", "label": 1}\n{"text": "\\ud83d", "label": 1}',
            "row 2: column 'text' contains '\\ud83d'",
        ),
        (
            "t.jsonl",
            '{"text": "a", "label": "\\ud83d"}',
            "row 1: column 'label' contains '\\ud83d'",
        ),
        ("t.jsonl", '{"text": "a", "label": null}', "row 1: column 'label' is None"),
        ("t.jsonl", '{"text": "a", "label": NaN}', "row 1: column 'label' is nan"),
        ("t.jsonl", '{"text": "a", "label": [1]}', "row 1: column 'label' is [1]"),
        ("t.parquet", "", "cannot be read"),
        ("t.parquet", "text,label\na,1\n", "cannot be read"),
        ("t.csv.gz", "text,label\na,1\n", "cannot be read"),
        (
            "t.csv.gz",
            gzip.compress(b"text,label\n" + b"a,1\n" * 9999, mtime=0)[:-20],
            "cannot be read",
        ),
        ("t.xlsx", "", "suffix '.xlsx' is unknown; allowed: .csv, .tsv"),
        ("t.json.gz", "", "suffix '.json.gz' is unknown"),
        ("t.parquet.gz", "", "suffix '.parquet.gz' is unknown"),
        ("t", "", "the suffix is missing"),
    ],
)
def test_bad_files_are_rejected_by_read_and_check(tmp_path, name, content, expected):
    path = put(tmp_path, content, name)
    message = error_of(path)
    assert message.startswith(f"{path}: ")
    assert expected in message
    with pytest.raises(InputError) as caught:
        sources.check(str(path))
    assert str(caught.value) == message


def test_bad_parquet_columns_are_rejected(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"text": [4, 5], "label": [0, 1]}), path)
    assert "row 1: column 'text' is 4 (int); allowed: a string" in error_of(path)
    assert "column 'words' is missing; columns: 'text', 'label'" in error_of(path, "words")
    pq.write_table(pa.table({"text": ["a", None], "label": [0, 1]}), path)
    assert "row 2: column 'text' is missing" in error_of(path)
    pq.write_table(pa.table({"text": ["a", "b"], "label": [1.0, float("nan")]}), path)
    assert "row 2: column 'label' is nan" in error_of(path)
    broken = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"]).buffers())
    pq.write_table(pa.table({"text": broken, "label": [0, 1]}), path)
    assert "row 2: column 'text' is not UTF-8: b'\\xff'" in error_of(path)
    pq.write_table(
        pa.table({"text": pa.array([], pa.string()), "label": pa.array([], pa.int8())}), path
    )
    assert "no rows" in error_of(path)


def test_missing_files_and_bad_names_are_rejected(tmp_path):
    assert error_of(tmp_path / "none.csv").startswith(f"{tmp_path / 'none.csv'}: no such file")
    (tmp_path / "folder.csv").mkdir()
    assert "allowed suffixes: .csv, .tsv, " in error_of(tmp_path / "folder.csv")
    assert "no such file" in error_of("file:///nowhere/none.csv")
    assert "no such file" in error_of("memory://nowhere/none.csv")
    assert "nosuchscheme" in error_of("nosuchscheme://bucket/none.csv")
    assert "text_column and label_column are both 'text'" in error_of(
        put(tmp_path, "text\na"), "text", "text"
    )
    with pytest.raises(InputError, match="no such file"):
        sources.pieces(str(tmp_path / "none.csv"))


def test_uris_open_through_pyarrow_and_fsspec(tmp_path):
    content = b"text,label\na,1\nb,2\n"
    path = put(tmp_path, content)
    with fsspec.open("memory://raysweep-test/data.csv", "wb") as file:
        file.write(content)
    spaced = put(tmp_path, content, "with space.csv")
    parquet = tmp_path / "t.parquet"
    pq.write_table(pa.table({"text": ["a", "b"], "label": [1, 2]}), parquet)
    for uri in (
        f"file://{path}",
        "memory://raysweep-test/data.csv",
        f"file://{spaced}",
        f"file://{parquet}",
    ):
        assert rows(uri) == (["a", "b"], ["1", "2"])
    assert fingerprint(f"file://{path}") == hashlib.sha256(content).hexdigest()


def test_fingerprint_depends_on_content_only(tmp_path):
    one, two = (
        put(tmp_path, "text,label\na,1\n", "1.csv"),
        put(tmp_path, "text,label\na,1\n", "2.csv"),
    )
    assert (
        fingerprint(str(one))
        == fingerprint(str(two))
        == hashlib.sha256(one.read_bytes()).hexdigest()
    )
    assert fingerprint("demo") == fingerprint("demo") != fingerprint("demo", split="test")


def test_demo_is_a_source():
    train, test = demo.generate()
    assert rows("demo") == ([row.text for row in train], [row.label for row in train])
    assert rows("demo", split="test")[0] == [row.text for row in test]
    sources.check("demo")
    assert (
        error_of("demo", split="validation") == "demo: split is 'validation'; allowed: train, test"
    )


@pytest.mark.parametrize(
    ("source", "parsed"),
    [
        ("hub:imdb", ("imdb", "default")),
        ("hub:stanfordnlp/sst2:validation", ("stanfordnlp/sst2", "validation")),
        ("hub:a/b:train[:10%]", ("a/b", "train[:10%]")),
    ],
)
def test_hub_sources_are_parsed(source, parsed):
    assert hub.parse(source, "default") == parsed
    sources.check(source)


@pytest.mark.parametrize("source", ["hub:", "hub:a/b/c", "hub:a b", "hub:a:", "hub:https://a/b"])
def test_bad_hub_names_are_rejected(source):
    with pytest.raises(InputError, match=f"{re.escape(source)}.*hub:NAME, hub:NAME:SPLIT"):
        sources.check(source)


def test_unreachable_hub_is_reported_in_time(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(hub, "PROBE_SECONDS", 2.0)
    hub.reachable.cache_clear()
    began = time.monotonic()
    message = error_of("hub:nobody/nothing")
    assert time.monotonic() - began < 30
    assert message.startswith("hub:nobody/nothing: ") and "Hub cannot be reached" in message
    hub.reachable.cache_clear()


@pytest.mark.parametrize(
    ("environment", "url", "address"),
    [
        ({}, "https://huggingface.co", ("huggingface.co", 443)),
        ({}, "http://mirror", ("mirror", 80)),
        ({}, "http://mirror:8080", ("mirror", 8080)),
        ({"https_proxy": "http://proxy:3128"}, "https://huggingface.co", ("proxy", 3128)),
        ({"https_proxy": "proxy:3128"}, "https://huggingface.co", ("proxy", 3128)),
        ({"https_proxy": "http://proxy"}, "https://huggingface.co", ("proxy", 80)),
        (
            {"https_proxy": "proxy:3128", "no_proxy": "huggingface.co"},
            "https://huggingface.co",
            ("huggingface.co", 443),
        ),
        ({"http_proxy": "proxy:3128"}, "https://huggingface.co", ("huggingface.co", 443)),
    ],
)
def test_probe_uses_the_proxy_of_requests(monkeypatch, environment, url, address):
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert hub.first_address(url) == address


def test_hub_datasets_are_read_with_their_label_names(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(hub, "reachable", lambda: False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.chdir(tmp_path)  # datasets takes a folder of that name for the dataset
    features = datasets.Features(
        {"sentence": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])}
    )
    for split, labels in (("train", [1, 0]), ("test", [-1, 0])):
        table = datasets.Dataset.from_dict(
            {"sentence": ["good", "bad"], "label": labels}, features=features
        )
        (tmp_path / "reviews").mkdir(exist_ok=True)
        table.to_parquet(str(tmp_path / "reviews" / f"{split}.parquet"))
    assert rows("hub:reviews", "sentence") == (["good", "bad"], ["pos", "neg"])
    assert rows("hub:reviews:train[:1]", "sentence") == (["good"], ["pos"])
    assert "row 1: column 'label' is None" in error_of("hub:reviews", "sentence", split="test")
    assert "column 'text' is missing; columns: 'sentence', 'label'" in error_of("hub:reviews")
    assert "validation" in error_of("hub:reviews:validation", "sentence")
    assert len(fingerprint("hub:reviews", "sentence")) == 64
    narrow = datasets.Features(
        {"sentence": datasets.Value("string"), "label": datasets.Value("float32")}
    )
    table = datasets.Dataset.from_dict(
        {"sentence": ["good", "bad"], "label": [0.1, -0.0]}, features=narrow
    )
    (tmp_path / "scores").mkdir()
    table.to_parquet(str(tmp_path / "scores" / "train.parquet"))
    assert rows("hub:scores", "sentence")[1] == ["0.1", "0"]
    assert not datasets.config.HF_HUB_OFFLINE


def fail_reads(monkeypatch: pytest.MonkeyPatch, error: Exception, times: int) -> list[int]:
    """Make the first reads of files fail after their second block, and count the reads."""
    reads: list[int] = []
    read = files.read

    def failing(*arguments: Any) -> files.Blocks:
        reads.append(len(reads))
        for number, block in enumerate(read(*arguments)):
            if number == 2 and len(reads) <= times:
                raise error
            yield block

    monkeypatch.setattr(files, "read", failing)
    monkeypatch.setattr(sources, "PAUSES", (0.0, 0.0, 0.0))
    return reads


def write_rows(name: str) -> list[str]:
    """Write a file of several blocks and return its texts."""
    texts = [f"text {number}" for number in range(50_000)]
    with fsspec.open(name, "wt") as file:
        file.write("text,label\n" + "".join(f"{text},a\n" for text in texts))
    return texts


def read_texts(name: str) -> list[str]:
    (piece,) = sources.pieces(name)
    return [text for batch in sources.read_piece(piece) for text in batch.texts]


@pytest.mark.parametrize(
    "error", [ConnectionResetError("reset by peer"), OSError("503 slow down"), RuntimeError("gone")]
)
def test_failed_remote_read_is_retried_without_repeating_rows(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = write_rows("memory://raysweep-test/failing.csv")
    reads = fail_reads(monkeypatch, error, times=3)
    assert read_texts("memory://raysweep-test/failing.csv") == texts
    assert len(reads) == 4


def test_persistent_remote_failure_is_a_storage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    write_rows("memory://raysweep-test/failing.csv")
    fail_reads(monkeypatch, OSError("503 slow down"), times=4)
    with pytest.raises(StorageError, match=r"failing.csv: cannot be read: 503 slow down"):
        read_texts("memory://raysweep-test/failing.csv")


def test_local_read_is_not_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_rows(str(tmp_path / "failing.csv"))
    reads = fail_reads(monkeypatch, OSError("a bad sector"), times=1)
    with pytest.raises(InputError, match=r"failing.csv: cannot be read: a bad sector") as raised:
        read_texts(str(tmp_path / "failing.csv"))
    assert not isinstance(raised.value, StorageError)
    assert len(reads) == 1


def test_damaged_remote_file_is_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    content = gzip.compress(b"text,label\n" + b"a,1\n" * 9999, mtime=0)
    for number, damaged in enumerate((content[:-20], b"no gzip")):
        name = f"memory://raysweep-test/damaged-{number}.csv.gz"
        with fsspec.open(name, "wb") as file:
            file.write(damaged)
        monkeypatch.setattr(time, "sleep", pytest.fail)
        with pytest.raises(InputError, match="cannot be read") as raised:
            read_texts(name)
        assert not isinstance(raised.value, StorageError)


def test_large_file_is_hashed_again_only_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "LARGE_BYTES", 10)
    monkeypatch.setenv("RAYSWEEP_CACHE_DIR", str(tmp_path / "cache"))
    path = put(tmp_path, "text,label\na,1\n")

    def digest_of(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()

    def write(text: str, age_seconds: float) -> None:
        path.write_text(text)
        moment = time.time() - age_seconds
        os.utime(path, (moment, moment))

    assert fingerprint(str(path)) == digest_of("text,label\na,1\n")
    assert not (tmp_path / "cache").exists(), "it may still be written"
    write("text,label\nb,1\n", age_seconds=60)
    assert fingerprint(str(path)) == digest_of("text,label\nb,1\n")
    with monkeypatch.context() as patch:
        patch.setattr(sources, "stored", None)  # so that reading it fails
        assert fingerprint(str(path)) == digest_of("text,label\nb,1\n")
    (digest,) = (tmp_path / "cache" / "digests").iterdir()
    digest.write_bytes(b"")  # as after a power failure
    assert fingerprint(str(path)) == digest_of("text,label\nb,1\n")
    write("text,label\nc,1\n", age_seconds=50)
    assert fingerprint(str(path)) == digest_of("text,label\nc,1\n")
    write("text,label\nlonger,1\n", age_seconds=50)
    assert fingerprint(str(path)) == digest_of("text,label\nlonger,1\n")


@pytest.mark.parametrize("name", ["t.csv", "t.tsv.gz", "t.jsonl", "t.parquet"])
def test_any_columns_are_read_unchanged(name: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"first": ["a", "b, c"], "number": [1, 2], "last": ["d", "e"]})
    if name.endswith("parquet"):
        frame.to_parquet(tmp_path / name)
    elif name.endswith("jsonl"):
        frame.to_json(tmp_path / name, orient="records", lines=True)
    else:
        frame.to_csv(tmp_path / name, index=False, sep="\t" if "tsv" in name else ",")
    (piece,) = sources.pieces(str(tmp_path / name))
    assert sources.column_names(piece) == list(frame)
    for columns in (("last",), ("last", "first"), ("number", "last", "first")):
        (block,) = sources.read_values(piece, columns)
        texts = {
            column: list(map(str, values)) for column, values in zip(columns, block, strict=True)
        }
        assert texts == {column: frame[column].astype(str).tolist() for column in columns}


def test_lines_and_columns_of_odd_files(tmp_path: Path) -> None:
    (piece,) = sources.pieces(str(put(tmp_path, '\ufeffa\t"b\r\n\n c ', "t.tsv")))
    assert list(sources.lines(piece)) == ['a\t"b', "", " c "]
    (empty,) = sources.pieces(str(put(tmp_path, "\n", "empty.csv")))
    assert sources.column_names(empty) == []
    (piece,) = sources.pieces(str(put(tmp_path, b"a\n\xff", "wrong.tsv")))
    with pytest.raises(InputError, match=r"wrong.tsv: line 2: byte 0xff is not UTF-8"):
        list(sources.lines(piece))
    (piece,) = sources.pieces(str(put(tmp_path, "[1]", "wrong.jsonl")))
    with pytest.raises(
        InputError, match=r"wrong.jsonl: line 1: the JSON value is .1.; allowed: an object"
    ):
        sources.column_names(piece)
    (demo_piece,) = sources.pieces("demo")
    assert sources.column_names(demo_piece) == ["text", "label"]
    assert next(sources.read_values(demo_piece, ("anything",))) == (
        [row.text for row in demo.generate()[0]],
    )
