"""A bucket whose requests for some objects fail, like those of a machine whose network is down."""

from collections.abc import Callable
from typing import Any

from obstore.exceptions import GenericError

from raysweep.storage.bucket import Bucket


class CutOff:
    """Wraps a bucket's client: requests for objects whose names contain one of ``parts`` fail."""

    def __init__(self, bucket: Bucket, *parts: str) -> None:
        self.parts = parts
        self._client = bucket._store
        bucket.__dict__["_store"] = self  # where the property keeps its client

    def __getattr__(self, method: str) -> Callable[..., Any]:
        request = getattr(self._client, method)

        def unless_cut_off(name: Any, *arguments: Any, **options: Any) -> Any:
            if any(part in str(name) for part in self.parts):
                raise GenericError("Connection refused")
            return request(name, *arguments, **options)

        return unless_cut_off
