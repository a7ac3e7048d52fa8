"""Encoders in buckets."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest

from raysweep.config import packages
from raysweep.config.sweep import EncoderConfig
from raysweep.encoders import copies
from raysweep.encoders.loaded import LoadedEncoder
from raysweep.encoders.locate import locate
from raysweep.errors import InputError
from raysweep.storage import bucket, scratch
from raysweep.storage.bucket import Bucket
from support.command_line import raysweep_here
from support.s3_server import BUCKET, S3Server

TEXTS = ["a warm room", "cold soup", "the third evening in a row"]


def upload(folder: Path, prefix: str) -> None:
    client = boto3.client("s3")
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            client.upload_file(str(file), BUCKET, f"{prefix}/{file.relative_to(folder).as_posix()}")


def write_files(folder: Path) -> Path:
    """Write files with the layout of an encoder, whose content nothing reads."""
    files = {"modules.json": "[]", "model.safetensors": "weights", "1_Pooling/config.json": "{}"}
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def list_files(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def embed(config: EncoderConfig) -> Any:
    return LoadedEncoder.load(config).embed_texts(TEXTS)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test an empty cache, as on a new node."""
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path / "cache"))
    copies.download.cache_clear()
    yield
    copies.download.cache_clear()


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the objects that are downloaded from now on."""
    names: list[str] = []
    download = Bucket.download

    def record(self: Bucket, name: str, path: Path, num_bytes: int) -> None:
        names.append(name)
        download(self, name, path, num_bytes)

    monkeypatch.setattr(Bucket, "download", record)
    return names


def test_encoder_in_a_bucket_equals_its_local_folder(server: S3Server, tiny_encoder: str, downloads: list[str]) -> None:
    upload(Path(tiny_encoder), "models/tiny")
    config = EncoderConfig(name=server.uri("models/tiny/"))
    source = locate(config)
    assert source.identity == locate(EncoderConfig(name=tiny_encoder)).identity, "artifacts are shared"
    assert source.folder.name == "tiny"
    assert np.array_equal(embed(config), embed(EncoderConfig(name=tiny_encoder)))
    assert len(downloads) == len(set(downloads)), "each file was downloaded once"


def test_only_needed_objects_are_downloaded(server: S3Server, tmp_path: Path) -> None:
    upload(write_files(tmp_path / "model"), "models/console")
    client = boto3.client("s3")
    for name in ("", "1_Pooling/", ".git/config", "onnx/model.onnx", "tf_model.h5", "openvino/openvino_model.bin"):
        client.put_object(Bucket=BUCKET, Key=f"models/console/{name}", Body=b"")
    folder = locate(EncoderConfig(name=server.uri("models/console"))).folder
    assert list_files(folder) == list_files(tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        (f"s3://{BUCKET}/nothing/here", ["no model in this folder", "modules.json", "config.json"]),
        (f"s3://{BUCKET}/models/text", ["no model in this folder", "modules.json", "config.json"]),
        (f"s3://{BUCKET}", ["no model in this folder"]),
        ("s3://no-such-bucket/model", ["NoSuchBucket"]),
        (f"s3://{BUCKET}/model?endpoint_override=127.0.0.1%3A9&scheme=http", ["cannot be downloaded", "127.0.0.1:9"]),
    ],
)
def test_unusable_uri_is_rejected(
    server: S3Server, name: str, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "FIRST_PATIENCE_SECONDS", 0.0)
    boto3.client("s3").put_object(Bucket=BUCKET, Key="models/text/readme.txt", Body=b"text")
    with pytest.raises(InputError) as caught:
        locate(EncoderConfig(name=name))
    for part in [name, *messages]:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("flag", ["--model", "--reference"])
@pytest.mark.parametrize(
    ("name", "problem"), [("https://host/model", "https://"), ("s3://", "bucket"), ("s3://ID:SECRET@bucket/m", "key")]
)
def test_invalid_uri_on_the_command_line_is_rejected(flag: str, name: str, problem: str, tmp_path: Path) -> None:
    arguments = {"--model": "demo", "--train": "a.csv", "--test": "b.csv", flag: name}
    done = raysweep_here(tmp_path, "evaluate", *(word for pair in arguments.items() for word in pair))
    assert done.returncode == 2
    assert flag in done.stderr and problem in done.stderr
    assert "SECRET" not in done.stderr


def test_invalid_uri_in_a_sweep_is_rejected_with_its_key(tmp_path: Path) -> None:
    arguments = ("smoke", "--examples.experts", "[{name: 'ftp://host/model'}]", "--storage.runs", "runs")
    done = raysweep_here(tmp_path, "run", *arguments)
    assert done.returncode == 2
    assert "examples.experts" in done.stderr and "ftp://" in done.stderr and "s3://BUCKET/PREFIX" in done.stderr


@pytest.mark.parametrize(("name", "extra"), [("s3://bucket/model", "s3"), ("gs://bucket/model", "gcs")])
def test_missing_package_is_reported(name: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = EncoderConfig(name=name)
    assert [(need.package, need.extra) for need in packages.needs_of_encoder("model", config)] == [("obstore", extra)]
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(InputError) as caught:
        locate(config)
    assert name in str(caught.value) and f"pip install 'raysweep[{extra}]'" in str(caught.value)
