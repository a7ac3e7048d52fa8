"""The queries of the Grafana dashboard, evaluated on scraped samples."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from support.paths import ROOT

DASHBOARD = ROOT / "clusters" / "grafana.json"
QUERY = re.compile(
    r"(?P<aggregate>sum|max) by \((?P<labels>[\w, ]+)\) "
    r"\((?:(?:rate|increase)\()?(?P<metric>\w+)\{(?P<matchers>[^}]*)\}(?:\[10m\]\))?\)"
)
MATCHER = re.compile(r'(\w+)(=~?)"([^"]*)"')
AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {"sum": sum, "max": max}


class Sample(NamedTuple):
    """The current value of one time series."""

    metric: str
    labels: Mapping[str, str]
    value: float


def queries() -> Iterator[tuple[str, str]]:
    """Yield the title of each panel with each of its queries."""
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def answer(query: str, samples: Sequence[Sample], run: str = ".+") -> dict[tuple[str, ...], float]:
    """Return the current value of each group in a query's result, keyed by the labels in ``by``.

    In place of ``rate`` and ``increase``, which need samples over time, the value is that of the counter itself. ``run``
    is the value of the dashboard's variable.
    """
    parts = QUERY.fullmatch(query)
    assert parts is not None, f"{query}: not a form that this function evaluates"
    labels = parts["labels"].split(", ")
    matchers = MATCHER.findall(parts["matchers"].replace("$run", run))
    groups = defaultdict(list)
    for sample in samples:
        if sample.metric == parts["metric"] and all(
            re.fullmatch(value if operator == "=~" else re.escape(value), sample.labels[label])
            for label, operator, value in matchers
        ):
            groups[tuple(sample.labels[label] for label in labels)].append(sample.value)
    return {group: AGGREGATES[parts["aggregate"]](values) for group, values in groups.items()}
