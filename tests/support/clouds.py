"""Local clouds that have no capacity for some node types or are slow to launch them."""

import time
from typing import Any

from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider
from ray.autoscaler.node_launch_exception import NodeLaunchException


class PoorCloud(FakeMultiNodeProvider):
    """Spot types never launch; other types launch after ``launch_seconds`` of the configuration."""

    def create_node_with_resources_and_labels(
        self, node_config: Any, tags: Any, count: int, resources: Any, labels: Any
    ) -> None:
        if node_config.get("spot"):
            raise NodeLaunchException(
                "InsufficientInstanceCapacity", "there is no room for spot nodes", None
            )
        time.sleep(self.provider_config.get("launch_seconds", 0))
        super().create_node_with_resources_and_labels(node_config, tags, count, resources, labels)
