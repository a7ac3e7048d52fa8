"""Provenance files of exported models."""

from pathlib import Path

import pytest

from raysweep.encoders.provenance import Provenance
from raysweep.errors import InputError


def test_provenance_round_trip(tmp_path: Path) -> None:
    assert Provenance.read(tmp_path) is None
    written = Provenance("runs/a", "3:6:concat=0.3", "demo", ("a.csv", "hub:b"), "subset", "review")
    written.write(tmp_path)
    assert Provenance.read(tmp_path) == written


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"run": "a"}',
        b'{"run": "a", "point": "b", "base_model": "c", "tuned_on": [1]}',
        b'{"run": "a", "point": "b", "base_model": "c", "tuned_on": ["\\u001b[2J"]}',
        b"\xff",
    ],
)
def test_damaged_file_is_rejected(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "raysweep.json").write_bytes(content)
    with pytest.raises(InputError, match=r"raysweep.json: damaged.*--tuned-on"):
        Provenance.read(tmp_path)
