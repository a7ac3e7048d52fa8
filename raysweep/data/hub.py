"""Reader for datasets on the Hugging Face Hub, ``hub:NAME[:SPLIT]``."""

import contextlib
import functools
import os
import random
import re
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from raysweep.config import packages
from raysweep.data import files
from raysweep.errors import InputError

T = TypeVar("T")

_SOURCE = re.compile(r"hub:(?P<name>[\w.-]+(?:/[\w.-]+)?)(?::(?P<split>[^/\s][^/]*))?")
_PORTS = {"http": 80, "https": 443}
TRANSIENT_STATUSES = (
    408,
    425,
    429,
    500,
    502,
    503,
    504,
)
PATIENCE_SECONDS = 300.0  # total time spent retrying transient errors
FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 30.0
# Short enough for read() to fail within 30 s, including imports and the cache lookup.
PROBE_SECONDS = 10.0


def parse(source: str, split: str) -> tuple[str, str]:
    """Return the name and split of a Hub source. The default split is ``split``.

    Raises:
        InputError: If the source is malformed, or the ``datasets`` package is missing.
    """
    match = _SOURCE.fullmatch(source)
    if not match:
        raise InputError(
            f"{source}: not a hub source; allowed: hub:NAME, hub:NAME:SPLIT, such as hub:stanfordnlp/sst2"
        )
    packages.check(packages.needs_of_sources(source, [source]))
    return match["name"], match["split"] or split


def column_names(source: str, subset: str | None, split: str) -> list[str]:
    """Return the column names of one split. Raises InputError like :func:`read`."""
    names: list[str] = _load(source, subset, split).column_names
    return names


def read(source: str, columns: tuple[str, ...], subset: str | None, split: str) -> files.Blocks:
    """Stream columns of one split and convert class labels to names.

    The dataset is loaded from the Hub, or from the local cache if the Hub does not respond.

    Raises:
        InputError: If the dataset cannot be loaded. If the Hub does not respond, this takes at most 30 s.
    """
    dataset = _load(source, subset, split)
    import datasets

    files.positions(source, dataset.column_names, columns)
    class_names = {}
    for column in columns:
        feature = dataset.features[column]
        is_label = isinstance(feature, datasets.ClassLabel)
        if is_label:
            class_names[column] = feature.names
    selected = dataset.select_columns(list(columns))
    arrow_dataset = selected.with_format("arrow")
    for batch in arrow_dataset.iter(files.BLOCK_ROWS):
        block = []
        for column in columns:
            values = list(map(files.plain_value, batch.column(column)))
            if column in class_names:
                names = class_names[column]
                # Test splits often use null or -1 as the label.
                values = [
                    None if number is None or number < 0 else names[number] for number in values
                ]
            block.append(values)
        yield tuple(block)


def _load(source: str, subset: str | None, split: str) -> Any:
    name, split = parse(source, split)
    import datasets

    offline = datasets.config.HF_HUB_OFFLINE
    try:
        # If the Hub does not respond, use only the cache, because datasets would retry for minutes.
        datasets.config.HF_HUB_OFFLINE = offline or not reachable()
        return persist(lambda: datasets.load_dataset(name, subset, split=split))
    except Exception as error:  # datasets also raises exceptions of its dependencies
        reason = (
            ""
            if reachable()
            else "the Hugging Face Hub cannot be reached, and the dataset is not in the local cache: "
        )
        raise InputError(f"{source}: cannot be loaded: {reason}{error}") from None
    finally:
        datasets.config.HF_HUB_OFFLINE = offline


def persist(request: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
    """Return the result of ``request``, retrying transient Hub errors with exponential backoff and jitter.

    Many nodes that start at the same time behind one IP address can exceed the Hub's rate limit. ``Retry-After`` headers
    are respected. A transient error is raised after PATIENCE_SECONDS of waiting.
    """
    waited, pause = 0.0, FIRST_PAUSE_SECONDS
    while True:
        try:
            return request()
        except Exception as error:
            response = _transient_response(error)
            if response is None or waited >= PATIENCE_SECONDS:
                raise
            retry_after = str(response.headers.get("Retry-After", ""))
            seconds = float(retry_after) if retry_after.isdigit() else 0.0
        seconds = min(max(seconds, pause * random.uniform(0.5, 1.5)), PATIENCE_SECONDS)
        sleep(seconds)
        waited += seconds
        pause = min(2 * pause, MAX_PAUSE_SECONDS)


def _transient_response(error: BaseException | None) -> Any:
    """Return the HTTP response with a transient status from an error or its causes, or None."""
    while error is not None:
        response = getattr(error, "response", None)
        if getattr(response, "status_code", None) in TRANSIENT_STATUSES:
            return response
        error = error.__cause__ or error.__context__
    return None


def first_address(url: str) -> tuple[str, int]:
    """Return the host and port of the proxy for a URL, or of the URL itself if no proxy is configured."""
    endpoint = urlsplit(url)
    proxy = None if proxy_bypass(endpoint.hostname or "") else getproxies().get(endpoint.scheme)
    if proxy and "://" not in proxy:
        proxy = f"http://{proxy}"
    address = urlsplit(proxy) if proxy else endpoint
    return address.hostname or "", address.port or _PORTS.get(address.scheme, 443)


@functools.cache
def reachable() -> bool:
    """Return whether the Hub responds within PROBE_SECONDS; always False if HF_HUB_OFFLINE is set."""
    offline = os.environ.get("HF_HUB_OFFLINE", "")
    if offline.lower() in {"1", "true", "yes", "on"}:
        return False
    url = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    answered: list[bool] = []

    def probe() -> None:
        with contextlib.suppress(OSError, ValueError), socket.create_connection(first_address(url)):
            answered.append(True)

    # Name resolution has no timeout, and the connection timeout applies per address, so use a daemon thread.
    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    return bool(answered)
