"""Transient errors of the hub are retried with growing pauses; others are raised at once."""

from types import SimpleNamespace

import datasets
import pytest

from raysweep.data import hub


class HubError(Exception):
    """An error of the hub's client, with the response that caused it."""

    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(status)
        self.response = SimpleNamespace(
            status_code=status,
            headers={key.replace("_", "-"): value for key, value in headers.items()},
        )


def answer(errors: list[Exception]) -> str:
    """Raise the next error, as the hub's client does when it finds no cached copy either, or return an answer."""
    if errors:
        raise FileNotFoundError("not in the cache") from errors.pop(0)
    return "folder"


def test_throttled_requests_are_retried_with_growing_pauses() -> None:
    pauses: list[float] = []
    errors: list[Exception] = [HubError(429), HubError(503), HubError(429)]
    assert hub.persist(lambda: answer(errors), pauses.append) == "folder"
    assert len(pauses) == 3
    for pause, expected in zip(pauses, (1, 2, 4), strict=True):
        assert 0.5 * expected <= pause <= 1.5 * expected


def test_retry_after_is_respected() -> None:
    pauses: list[float] = []
    errors: list[Exception] = [HubError(429, Retry_After="90")]
    hub.persist(lambda: answer(errors), pauses.append)
    assert pauses == [90]


def test_lasting_throttling_is_raised_after_the_patience() -> None:
    pauses: list[float] = []

    def throttle() -> None:
        raise HubError(429)

    with pytest.raises(HubError):
        hub.persist(throttle, pauses.append)
    assert hub.PATIENCE_SECONDS <= sum(pauses) < 2 * hub.PATIENCE_SECONDS


def test_throttled_downloads_of_datasets_are_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = datasets.Dataset.from_dict({"text": ["good", "bad"]})
    errors: list[Exception] = [HubError(429), HubError(503)]

    def load_dataset(*_: object, **__: object) -> datasets.Dataset:
        answer(errors)
        return stored

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(hub, "reachable", lambda: True)
    monkeypatch.setattr(hub, "FIRST_PAUSE_SECONDS", 0.01)
    assert list(hub.read("hub:owner/name", ("text",), None, "train")) == [(["good", "bad"],)]
    assert not errors


@pytest.mark.parametrize("error", [HubError(404), HubError(401), OSError("connection refused")])
def test_other_errors_are_not_retried(error: Exception) -> None:
    pauses: list[float] = []
    with pytest.raises(FileNotFoundError):
        hub.persist(lambda: answer([error]), pauses.append)
    assert pauses == []
