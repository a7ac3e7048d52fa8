"""Objects in a bucket whose names point outside the download folder."""

from pathlib import Path

import pytest

from raysweep.storage.folder import open_folder
from support.command_line import raysweep_here
from support.hostile import Canary, check_rejected
from support.ledgers import StoredTrial, write_ledger
from support.s3_server import BUCKET, S3Server

NAMES = ["../../../../evil", "a/../../evil", "./evil", "/etc/evil", "a\x01b"]


@pytest.mark.parametrize("command", ["report", "export", "record", "resume"])
@pytest.mark.parametrize("number", range(len(NAMES)))
def test_object_names_outside_the_run_are_rejected(
    number: int, command: str, server: S3Server, tmp_path: Path, canary: Canary
) -> None:
    import boto3

    place = server.uri(command, str(number))
    run = open_folder(place)
    (tmp_path / "run").mkdir()
    write_ledger(
        tmp_path / "run", [StoredTrial({"loss": "triplet"}, "completed", "", [(0.7, 0.4)])]
    )
    run.put("ledger.jsonl", (tmp_path / "run" / "ledger.jsonl").read_bytes())
    for folder in ("ledger", "points/trial-0000-step-001"):
        key = f"{command}/{number}/{folder}/{NAMES[number]}"
        boto3.client("s3").put_object(Bucket=BUCKET, Key=key, Body=b"evil")
    arguments = {
        "report": ["report", place],
        "record": ["record", place, "recording.csv"],
        "export": ["export", place, "model"],
        "resume": ["run", "--resume", place],
    }
    done = raysweep_here(tmp_path, *arguments[command])
    check_rejected(done, place, "invalid name")
    assert not list(tmp_path.rglob("*evil*"))
    assert not list(run.path.parent.rglob("*evil*"))
