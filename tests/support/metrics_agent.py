"""The metrics of a Ray node as Prometheus reads them.

The agent of a node collects them from the node's processes and serves them. Without the packages of ``ray[default]``,
Ray starts no such agent; a stand-in then takes its place for this process.
"""

import contextlib
import re
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import grpc
import pytest
import ray
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from ray._private.node import Node
from ray._private.utils import get_dashboard_dependency_error

from raysweep.cluster.connection import connected
from raysweep.config.sweep import ResourcesConfig
from support.grafana import Sample

LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Agent(Protocol):
    """The source of a node's metrics."""

    def scrape(self) -> Sequence[Sample]:
        """Return the current samples."""


class RayAgent:
    """The agent of the only node of a local Ray."""

    def scrape(self) -> Sequence[Sample]:
        (node,) = ray.nodes()
        url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        with urllib.request.urlopen(url, timeout=10) as response:
            text = response.read().decode()
        return [
            Sample(name, dict(LABEL.findall(labels)), float(value))
            for name, labels, value in LINE.findall(text)
        ]


class AgentStandIn:
    """Receives metrics by the protocol of the agent, and names them like it. Gauges do not expire."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._server = grpc.server(ThreadPoolExecutor(1))
        export = grpc.unary_unary_rpc_method_handler(
            self._export,
            ExportMetricsServiceRequest.FromString,
            ExportMetricsServiceResponse.SerializeToString,
        )
        service = "opentelemetry.proto.collector.metrics.v1.MetricsService"
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(service, {"Export": export})]
        )
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def scrape(self) -> Sequence[Sample]:
        return [
            Sample(name, dict(labels), value)
            for (name, labels), value in list(self._values.items())
        ]

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._server.start()
        try:
            yield
        finally:
            self._server.stop(None)

    def _export(
        self, request: ExportMetricsServiceRequest, context: object
    ) -> ExportMetricsServiceResponse:
        for resource in request.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    is_counter = metric.sum.is_monotonic
                    name = f"ray_{metric.name}" + "_total" * is_counter
                    for point in metric.sum.data_points if is_counter else metric.gauge.data_points:
                        labels = {label.key: label.value.string_value for label in point.attributes}
                        key = name, tuple(sorted(labels.items()))
                        # processes export differences
                        before = self._values.get(key, 0.0) if is_counter else 0.0
                        self._values[key] = before + point.as_double
        return ExportMetricsServiceResponse()


@contextlib.contextmanager
def local_ray(metadata: dict[str, str]) -> Iterator[Agent]:
    """Start Ray locally with an agent, or with a stand-in for it."""
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as running:
        patch.setenv("RAY_metrics_report_interval_ms", "1000")
        if get_dashboard_dependency_error() is None:
            running.enter_context(
                connected(ResourcesConfig(num_cpus=2), show_workers=False, metadata=metadata)
            )
            yield RayAgent()
            return
        agent = AgentStandIn()
        patch.setattr(Node, "metrics_agent_port", agent.port)
        running.enter_context(
            connected(ResourcesConfig(num_cpus=2), show_workers=False, metadata=metadata)
        )
        running.enter_context(agent.running())
        yield agent
