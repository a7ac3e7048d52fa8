"""The loss and the sweep's file that the page on extending raysweep shows."""

import re
from pathlib import Path

import pytest

from support.paths import ROOT

NAME = "my_losses:RankedTriplets"


def write_documented_loss(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the module of the page importable, and return the file with its YAML."""
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(# my_losses\.py\n.*?)^```", page, re.DOTALL | re.MULTILINE)
    (text,) = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (folder / "my_losses.py").write_text(code, encoding="utf-8")
    (folder / "own-loss.yaml").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    return folder / "own-loss.yaml"
