"""The prose check warns about sentences, ignores code, and never fails."""

import subprocess
import sys
from pathlib import Path

from support.paths import ROOT


def check_prose(*paths: Path) -> list[str]:
    command = [sys.executable, str(ROOT / "tools" / "prose.py"), *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_prose_is_checked_and_code_is_not(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Trials are paused.\n\n```sh\nheld\n```\n\nUse `held`.\nThe trial goes on.\n",
        encoding="utf-8",
    )
    module = tmp_path / "module.py"
    module.write_text(
        '"""Return trials.\n\nOf each trial one is returned.\n"""\n\nheld = 1  # so many\n',
        encoding="utf-8",
    )
    warnings = check_prose(page, module)
    places = [warning.partition(": ")[0] for warning in warnings]
    assert places == [f"{page}:8", f"{module}:1", f"{module}:6"]


def test_files_that_cannot_be_parsed_do_not_fail_a_commit(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n", encoding="utf-8")
    latin = tmp_path / "latin.md"
    latin.write_bytes(b"caf\xe9\n")
    assert check_prose(broken, latin) == []
