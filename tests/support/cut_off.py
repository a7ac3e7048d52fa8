"""A bucket whose requests about some objects find no store, as of one machine whose network is down for a while."""

from collections.abc import Callable
from typing import Any

from obstore.exceptions import GenericError

from raysweep.storage.bucket import Bucket


class CutOff:
    """Stands between a bucket and its client. Requests for what has one of ``parts`` in its name fail as long as it has."""

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
