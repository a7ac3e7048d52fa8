"""Encoders in buckets, and copies of encoders from which workers load without the Hub."""

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import huggingface_hub
import numpy as np
import pytest

from raysweep.cluster.resources import Capacity, NodeSize, Request
from raysweep.config import packages
from raysweep.config.sweep import EncoderConfig
from raysweep.data.artifacts import Store, list_artifacts
from raysweep.data.prepared import Prepared
from raysweep.encoders import copies
from raysweep.encoders.copies import find_copy, store_copy
from raysweep.encoders.loaded import LoadedEncoder
from raysweep.encoders.locate import ModelSource, locate, locate_same
from raysweep.errors import InputError
from raysweep.prepare.build import store_models
from raysweep.prepare.workers import EncodeWorker
from raysweep.storage import bucket, cache, scratch
from raysweep.storage.bucket import Bucket
from raysweep.training.workbench import Workbench
from support.command_line import raysweep_here
from support.displays import ListDisplay
from support.encoders import EVALUATION
from support.s3_server import BUCKET, S3Server

HUB_NAME = "tests/tiny"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB_IDENTITY = f"hub:{HUB_NAME}@{COMMIT}"
HUB_ENCODER = EncoderConfig(name=HUB_NAME)
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


def embed(config: EncoderConfig, **options: Any) -> Any:
    return LoadedEncoder.load(config, **options).embed_texts(TEXTS)


def use_as_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for lock in cache.in_use.values():
        lock.close()
    monkeypatch.setattr(cache, "in_use", {})


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test an empty cache, as on a new node."""
    monkeypatch.setenv(scratch.VARIABLE, str(tmp_path / "cache"))
    use_as_new_process(monkeypatch)
    copies.download.cache_clear()
    yield
    copies.download.cache_clear()


@pytest.fixture
def blocked_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the Hub's client fail, without any model in its cache, as on a new node without access to the Hub."""

    def fail(*_: object, **__: object) -> str:
        raise huggingface_hub.errors.LocalEntryNotFoundError("blocked by the test")

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)


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


def test_encoder_in_a_bucket_equals_its_local_folder(
    server: S3Server, tiny_encoder: str, downloads: list[str]
) -> None:
    upload(Path(tiny_encoder), "models/tiny")
    config = EncoderConfig(name=server.uri("models/tiny/"))
    source = locate(config)
    assert source.identity == locate(EncoderConfig(name=tiny_encoder)).identity, (
        "artifacts are shared"
    )
    assert source.folder.name == "tiny"
    assert np.array_equal(embed(config), embed(EncoderConfig(name=tiny_encoder)))
    assert len(downloads) == len(set(downloads)), "each file was downloaded once"


def test_only_needed_objects_are_downloaded(server: S3Server, tmp_path: Path) -> None:
    upload(write_files(tmp_path / "model"), "models/console")
    client = boto3.client("s3")
    for name in (
        "",
        "1_Pooling/",
        ".git/config",
        "onnx/model.onnx",
        "tf_model.h5",
        "openvino/openvino_model.bin",
    ):
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
        (
            f"s3://{BUCKET}/model?endpoint_override=127.0.0.1%3A9&scheme=http",
            ["cannot be downloaded", "127.0.0.1:9"],
        ),
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
    ("name", "problem"),
    [("https://host/model", "https://"), ("s3://", "bucket"), ("s3://ID:SECRET@bucket/m", "key")],
)
def test_invalid_uri_on_the_command_line_is_rejected(
    flag: str, name: str, problem: str, tmp_path: Path
) -> None:
    arguments = {"--model": "demo", "--train": "a.csv", "--test": "b.csv", flag: name}
    done = raysweep_here(
        tmp_path, "evaluate", *(word for pair in arguments.items() for word in pair)
    )
    assert done.returncode == 2
    assert flag in done.stderr and problem in done.stderr
    assert "SECRET" not in done.stderr


def test_invalid_uri_in_a_sweep_is_rejected_with_its_key(tmp_path: Path) -> None:
    arguments = (
        "smoke",
        "--examples.experts",
        "[{name: 'ftp://host/model'}]",
        "--storage.runs",
        "runs",
    )
    done = raysweep_here(tmp_path, "run", *arguments)
    assert done.returncode == 2
    assert (
        "examples.experts" in done.stderr
        and "ftp://" in done.stderr
        and "s3://BUCKET/PREFIX" in done.stderr
    )


@pytest.mark.parametrize(
    ("name", "extra"), [("s3://bucket/model", "s3"), ("gs://bucket/model", "gcs")]
)
def test_missing_package_is_reported(
    name: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EncoderConfig(name=name)
    assert [(need.package, need.extra) for need in packages.needs_of_encoder("model", config)] == [
        ("obstore", extra)
    ]
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(InputError) as caught:
        locate(config)
    assert name in str(caught.value) and f"pip install 'raysweep[{extra}]'" in str(caught.value)


def test_worker_loads_the_stored_copy_without_the_hub(
    server: S3Server,
    tiny_encoder: str,
    blocked_hub: None,
    downloads: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store(server.uri("artifacts"))
    with pytest.raises(InputError, match="Hub is unreachable"):
        locate_same(HUB_ENCODER, HUB_IDENTITY, store.location)
    store_copy(store, Path(tiny_encoder), HUB_IDENTITY, print)

    expected = embed(EncoderConfig(name=tiny_encoder))
    loaded = embed(HUB_ENCODER, identity=HUB_IDENTITY, artifacts=store.location)
    assert np.array_equal(loaded, expected)
    assert downloads
    num_downloads = len(downloads)
    use_as_new_process(monkeypatch)
    assert np.array_equal(
        embed(HUB_ENCODER, identity=HUB_IDENTITY, artifacts=store.location), expected
    )
    assert len(downloads) == num_downloads, "the node's cache has the copy"


def flip_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("name", ["model.safetensors", "1_Pooling/config.json"])
@pytest.mark.parametrize("damage", [flip_bit, Path.unlink])
@pytest.mark.usefixtures("blocked_hub")
def test_damaged_file_of_a_cached_copy_is_fetched_again(
    server: S3Server,
    tmp_path: Path,
    name: str,
    damage: Callable[[Path], None],
    downloads: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store(server.uri("damaged"))
    folder = write_files(tmp_path / "model")
    store_copy(store, folder, HUB_IDENTITY, print)
    copy = locate_same(HUB_ENCODER, HUB_IDENTITY, store.location).folder
    assert list_files(copy) == list_files(folder) | {cache.MANIFEST}
    use_as_new_process(monkeypatch)
    damage(copy / name)
    downloads.clear()
    assert locate_same(HUB_ENCODER, HUB_IDENTITY, store.location).folder == copy
    assert (copy / name).read_bytes() == (folder / name).read_bytes()
    assert {file.rpartition("/")[2] for file in downloads} == {cache.MANIFEST, Path(name).name}


def test_copy_in_a_folder_of_artifacts_is_used_in_place(tmp_path: Path, blocked_hub: None) -> None:
    store = Store(str(tmp_path / "artifacts"))
    folder = write_files(tmp_path / "model")
    store_copy(store, folder, HUB_IDENTITY, print)
    source = locate_same(HUB_ENCODER, HUB_IDENTITY, store.location)
    assert source.folder.parent == tmp_path / "artifacts"
    assert source.identity == HUB_IDENTITY
    assert list_files(source.folder) == list_files(folder) | {cache.MANIFEST}
    (listed,) = list_artifacts(store.root)
    assert listed.is_complete and listed.name == source.folder.name, (
        "raysweep artifacts lists and removes it"
    )


def test_copy_is_stored_once_and_only_if_complete(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(server.uri("once"))
    folder = write_files(tmp_path / "model")
    uploads: list[str] = []
    upload_file = Bucket.upload

    def fail_at_last(self: Bucket, path: Path, name: str) -> None:
        uploads.append(name)
        if len(uploads) == 3:
            raise KeyboardInterrupt
        upload_file(self, path, name)

    monkeypatch.setattr(Bucket, "upload", fail_at_last)
    with pytest.raises(KeyboardInterrupt):
        store_copy(store, folder, HUB_IDENTITY, print)
    assert not find_copy(store.location, HUB_IDENTITY).exists
    store_copy(store, folder, HUB_IDENTITY, print)
    assert find_copy(store.location, HUB_IDENTITY).exists
    num_uploads = len(uploads)
    store_copy(store, folder, HUB_IDENTITY, print)
    assert len(uploads) == num_uploads == 6


def test_folder_on_the_node_has_priority_if_it_is_the_same(
    tmp_path: Path, server: S3Server
) -> None:
    folder = write_files(tmp_path / "model")
    config = EncoderConfig(name=str(folder))
    identity = locate(config).identity
    store = Store(server.uri("folders"))
    store_copy(store, folder, identity, print)
    assert locate_same(config, identity, store.location).folder == folder
    (folder / "model.safetensors").write_text("other weights")
    source = locate_same(config, identity, store.location)
    assert (source.folder / "model.safetensors").read_text() == "weights"


ONE = Capacity((NodeSize(2, 0),), 1)
SEVERAL = Capacity((NodeSize(2, 0),) * 2, 1)


@pytest.mark.parametrize("in_bucket", [False, True])
@pytest.mark.parametrize("capacity", [ONE, SEVERAL])
@pytest.mark.parametrize("kind", ["demo", "folder", "hub", "uri"])
def test_copies_are_stored_only_for_nodes_that_may_lack_the_encoder(
    server: S3Server, tmp_path: Path, in_bucket: bool, capacity: Capacity, kind: str
) -> None:
    folder = write_files(tmp_path / "model")
    name = {
        "demo": "demo",
        "folder": str(folder),
        "hub": HUB_NAME,
        "uri": server.uri("models/any"),
    }[kind]
    place = server.uri("policy", tmp_path.name) if in_bucket else str(tmp_path / "artifacts")
    display = ListDisplay()
    models = {EncoderConfig(name=name): ModelSource(folder)}
    for _ in range(2):
        store_models(models, Store(place), capacity, display)
    is_stored = find_copy(place, ModelSource(folder).identity).exists
    always = {"demo": False, "uri": True}
    expected = always.get(kind, capacity is SEVERAL and (kind == "hub" or in_bucket))
    assert is_stored == expected
    assert [line.split()[2] for line in display.lines] == (["stored", "reused"] if expected else [])
    if not expected:
        assert not Store(place).root.names()


def test_trials_and_prepare_load_the_copy(
    tiny_prepared: Prepared, tiny_encoder: str, blocked_hub: None
) -> None:
    prepared = dataclasses.replace(
        tiny_prepared, model={**tiny_prepared.model, "name": HUB_NAME}, model_identity=HUB_IDENTITY
    )
    artifact = prepared.sentences_artifact
    worker = EncodeWorker(
        artifact, HUB_ENCODER, HUB_IDENTITY, "tuned", "document", Request(1, 0, 1)
    )
    store = Store(artifact.location)
    store_copy(store, Path(tiny_encoder), HUB_IDENTITY, print)
    try:
        expected = dict(
            LoadedEncoder.load(EncoderConfig(name=tiny_encoder)).model.named_parameters()
        )
        for model in (worker.model.model, Workbench(prepared, EVALUATION).model):
            weights = dict(model.named_parameters())
            assert weights.keys() == expected.keys()
            assert all((weights[name] == expected[name]).all() for name in weights)
    finally:
        store.remove(find_copy(store.location, HUB_IDENTITY))
