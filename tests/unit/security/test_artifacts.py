"""Artifacts with hostile content, and artifact folders that are links."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from raysweep.data.dataset import Sentences
from raysweep.data.shards import OpenShards
from raysweep.errors import InputError
from raysweep.storage.cache import MANIFEST
from support.command_line import raysweep_here
from support.hostile import Canary
from support.sweep_files import MINIMAL, read

NAME = f"sentences-{'0' * 20}"
SHARD = "00000-of-00001.arrow"


def objects(file: Path, canary: Canary) -> None:
    np.save(file, np.array([canary.object], object), allow_pickle=True)


def pickled(file: Path, canary: Canary) -> None:
    file.write_bytes(canary.pickle)


def nested(file: Path, canary: Canary) -> None:
    file.write_text("[" * 100_000)


def shard(content: bytes) -> Callable[[Path, Canary], None]:
    def write(file: Path, canary: Canary) -> None:
        raw = content or canary.pickle
        file.write_bytes(raw)
        manifest = {"shards": [{"num_rows": 1, "num_bytes": len(raw)}]}
        (file.parent / MANIFEST).write_text(json.dumps(manifest))

    return write


Read = Callable[[Path], object]

HOSTILE: dict[str, tuple[str, Callable[[Path, Canary], None], Read]] = {
    "labels of objects": ("labels.npy", objects, lambda folder: with_dataset(folder)),
    "labels pickled": ("labels.npy", pickled, lambda folder: with_dataset(folder)),
    "dataset nested": ("dataset.json", nested, Sentences),
    "dataset with other keys": (
        "dataset.json",
        lambda file, _: file.write_text('{"__class__": 1}') and None,
        Sentences,
    ),
    "manifest nested": (MANIFEST, nested, OpenShards),
    "manifest pickled": (MANIFEST, pickled, OpenShards),
    "manifest is a list": (MANIFEST, lambda file, _: file.write_text("[]") and None, OpenShards),
    "shard pickled": (SHARD, shard(b""), lambda folder: OpenShards(folder).columns("text")),
    "truncated shard": (
        SHARD,
        shard(b"ARROW1\0\0" + b"\xff" * 100),
        lambda folder: OpenShards(folder).columns("text"),
    ),
}


def with_dataset(folder: Path) -> Sentences:
    summary = {
        "sources": {},
        "label_names": [],
        "num_sentences": {},
        "num_by_label": {},
        "num_dropped_conflicting": 0,
    }
    summary |= {"conflicts": [], "num_duplicates": {}, "num_also_in_train": {}, "warnings": []}
    summary |= {"num_inside_train": {}, "num_left_out": 0}
    (folder / "dataset.json").write_text(json.dumps(summary))
    return Sentences(folder)


@pytest.mark.parametrize("name", HOSTILE)
def test_tampered_artifacts_are_rejected(name: str, tmp_path: Path, canary: Canary) -> None:
    file, tamper, open_it = HOSTILE[name]
    tamper(tmp_path / file, canary)
    with pytest.raises(InputError) as caught:
        open_it(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / file}: is damaged; ")


def test_pruning_removes_a_link_but_not_its_target(tmp_path: Path, canary: Canary) -> None:
    store = tmp_path / "artifacts"
    store.mkdir()
    (canary.folder / MANIFEST).write_text("{}")
    (store / NAME).symlink_to(canary.folder)
    done = raysweep_here(tmp_path, "artifacts", str(store), "--unused-for", "0", "--prune")
    assert done.returncode == 0, done.stderr
    assert not list(store.iterdir())
    (canary.folder / MANIFEST).unlink()  # the fixture checks that nothing else changed


def test_pruning_does_not_follow_links(tmp_path: Path, canary: Canary) -> None:
    store = tmp_path / "artifacts"
    (store / NAME).mkdir(parents=True)
    (store / NAME / MANIFEST).write_text("{}")
    (store / NAME / "work").symlink_to(canary.folder)
    done = raysweep_here(tmp_path, "artifacts", str(store), "--unused-for", "0", "--prune")
    assert done.returncode == 0, done.stderr
    assert not list(store.iterdir())


def test_building_through_a_link_is_rejected(
    tmp_path: Path, canary: Canary, tiny_encoder: str
) -> None:
    from raysweep.prepare.build import prepare_here
    from raysweep.prepare.plan import make_plan

    rows = "".join(f"{word} of the list,{number % 2}\n" for number, word in enumerate("abcdefgh"))
    (tmp_path / "train.csv").write_text(f"text,label\n{rows}")
    places = {"data__train": str(tmp_path / "train.csv"), "storage__runs": str(tmp_path / "runs")}
    config, space = read(tmp_path, MINIMAL, model=tiny_encoder, **places)
    artifact = make_plan(config, space).stages[0].artifact
    path = Path(artifact.location, artifact.name)
    path.parent.mkdir(parents=True)
    path.symlink_to(canary.folder)
    (canary.folder / ".secret").write_text("")
    with pytest.raises(InputError, match=f"{path}: .*symbolic link.*allowed: a folder"):
        prepare_here(config, space)
    (canary.folder / ".secret").unlink()  # a build would remove it as a leftover
