"""A run whose ``config.yaml`` does not match its ledger: commands that read the file fail, others ignore it."""

import pytest

from raysweep.errors import InputError
from raysweep.results.reader import load
from raysweep.results.settings_file import read_settings
from raysweep.storage.folder import as_folder
from support.command_line import raysweep_here
from support.ledgers import StoredSweep, dev_front, random_trials, write_ledger

SETTINGS = b"name: night-run\nseed: 0\nspace:\n  learning_rate: 0.0001\n"
CHANGED = "differs from the settings that the run was started or resumed with"
MISSING = "is missing"

READERS = (
    ("report", "RUN"),
    ("report", "RUN", "--to", "elsewhere"),
    ("compare", "other", "RUN"),
    ("export", "RUN", "exported"),
    ("paper", "RUN", "--to", "paper"),
    ("track", "RUN", "--to", "tensorboard"),
)
OTHERS = (("show", "RUN"), ("watch", "RUN", "--once"))


@pytest.fixture
def run(tmp_path):
    for name in ("run", "other"):
        (tmp_path / name).mkdir()
        trials = random_trials(12)
        write_ledger(
            tmp_path / name, trials, StoredSweep(settings=SETTINGS, test_of=dev_front(trials))
        )
    return tmp_path / "run"


def raysweep_on(run, arguments):
    return raysweep_here(run.parent, *(str(run) if word == "RUN" else word for word in arguments))


@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
@pytest.mark.parametrize(
    ("content", "problem"), [(SETTINGS[:-2], CHANGED), (b"\xff", CHANGED), (None, MISSING)]
)
def test_commands_that_read_damaged_settings_fail_with_one_line(run, arguments, content, problem):
    path = run / "config.yaml"
    path.unlink() if content is None else path.write_bytes(content)
    done = raysweep_on(run, arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {path}: {problem}")
    assert not (run / "report").exists()


@pytest.mark.parametrize("arguments", OTHERS, ids=" ".join)
def test_commands_that_do_not_read_the_settings_ignore_them(run, arguments):
    before = raysweep_on(run, arguments)
    (run / "config.yaml").write_bytes(SETTINGS[:-2])
    done = raysweep_on(run, arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, before.stdout, "")


def test_settings_must_match_a_session(run):
    results = load(run)
    assert read_settings(as_folder(run), results) == {
        "name": "night-run",
        "seed": 0,
        "space": {"learning_rate": 1e-4},
    }
    (run / "config.yaml").write_bytes(b"seed: 1")
    with pytest.raises(InputError, match="config.yaml"):
        read_settings(as_folder(run), results)
