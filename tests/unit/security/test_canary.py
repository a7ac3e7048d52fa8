"""The canary detects code that ran and files that changed."""

import pickle
from pathlib import Path

import pytest
import yaml

from support.hostile import Canary


@pytest.mark.parametrize("way", ["pickle", "source", "yaml"])
def test_canary_detects_executed_code(way: str, tmp_path: Path) -> None:
    canary = Canary.make(tmp_path)
    canary.check()
    match way:
        case "pickle":
            pickle.loads(canary.pickle)
        case "source":
            exec(canary.source)
        case "yaml":
            yaml.unsafe_load(canary.yaml)
    assert canary.is_touched
    with pytest.raises(AssertionError, match="hostile code ran"):
        canary.check()


@pytest.mark.parametrize("name", ["precious.txt", "inner/precious.txt"])
def test_canary_detects_deleted_files(name: str, tmp_path: Path) -> None:
    canary = Canary.make(tmp_path)
    (canary.folder / name).unlink()
    with pytest.raises(AssertionError):
        canary.check()
