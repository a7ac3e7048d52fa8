"""Paths of the checkout's files and of the real data."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPACES = ROOT / "search_spaces"
TESTS = ROOT / "tests"
DATA = Path(os.environ.get("RAYSWEEP_DATA_DIR", ROOT.parent / "shared" / "data"))
