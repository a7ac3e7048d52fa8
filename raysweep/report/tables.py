"""The report's tables as text cells, the same for the terminal, Markdown and HTML. Scores are shown x100."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from raysweep.report.summary import SPLITS, Summary, constraints_text, half_width, objective_formula
from raysweep.results.account import Entry
from raysweep.results.types import Point, RunInfo, ScoredSplit
from raysweep.results.views import varied_parameters

ABSENT = "–"  # noqa: RUF001 (an en dash reads as an empty cell)


SIGNS = {"completed": "●", "stopped": "✕", "held": "■", "interrupted": "▲", "failed": "✚", "running": "▶"}
"""Of how trials ended; the markers in the figure of their progress look the same."""


MISSES = "misses"  # the mark of front members that do not meet the constraints


@dataclass(frozen=True)
class TextTable:
    """Rows of text under ``columns``; the columns named in ``text`` are words, all others numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text: frozenset[str]


def show(score: float) -> str:
    """A score in [0, 1] as readers see it: x100, one decimal."""
    return f"{100 * score:.1f}"


def short(value: Any) -> str:
    """A hyperparameter's value in few characters."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def describe(config: Mapping[str, Any], names: Iterable[str]) -> str:
    """A configuration's parameters ``names`` on one line; those that are None or not given do not apply to it."""
    given = [(name, short(config[name])) for name in names if config.get(name) is not None]
    return ", ".join(value if name == "loss" else f"{name} {value}" for name, value in given) or ABSENT


def kind_name(point: Point) -> str:
    """The kind of an operating point with its parameter, such as ``concat(0.3)``."""
    return point.kind if point.value is None else f"{point.kind}({point.value:g})"


def front_table(summary: Summary, *, intervals: bool = True) -> TextTable:
    """The front by falling similarity on dev; with ``intervals`` P and S carry the half-width of their 95% interval."""
    info = summary.results.info
    names = varied_parameters(summary.results.trials)
    configs = {trial.trial: trial.config for trial in summary.results.trials}
    splits = SPLITS if summary.has_test else SPLITS[:1]
    scored = [f"{split} {score}" for split in splits for score in _SCORES]
    columns = ("mark", "trial", "step", "kind", "width", "configuration", *scored)
    rows = []
    for member in summary.members:
        point = member.dev
        scores = [cell for split in splits for cell in _scores(member.on(split), info, split, intervals)]
        words = (("★ knee", member.is_knee), ("◆ best", member.is_best), (MISSES, not member.is_feasible))
        marks = " ".join(word for word, on in words if on)
        configuration = describe(configs.get(point.trial or 0, {}), names)
        encoder = (str(point.trial), str(point.step), kind_name(point), str(point.width), configuration)
        rows.append((marks, *encoder, *scores))
    return TextTable(columns, tuple(rows), frozenset({"kind", "configuration", "mark"}))


_SCORES = ("P", "S", "retention")


def _scores(point: Point | None, info: RunInfo, split: ScoredSplit, intervals: bool) -> tuple[str, ...]:
    if point is None:
        return (ABSENT,) * len(_SCORES)
    cells = []
    for mean, std in ((point.polarity, point.polarity_std), (point.similarity, point.similarity_std)):
        width = f" ± {show(half_width(std, info.num_queries[split]))}" if intervals else ""
        cells.append(show(mean) + width)
    return (*cells, show(point.retention))


def area_table(summary: Summary) -> TextTable:
    """By split: the reference encoder's scores, and the hypervolumes of the front and of the oracle front."""
    columns = ("split", "P of R", "S of R", "hypervolume above (P, S)", "front", "oracle front", "share")
    rows = []
    for split in SPLITS:
        reference, area = summary.references.get(split), summary.areas.get(split)
        encoder = (show(reference.polarity), show(reference.similarity)) if reference else (ABSENT, ABSENT)
        if area:
            oracle = ABSENT if area.oracle is None else f"{1e4 * area.oracle:.1f}"
            share = ABSENT if area.share is None else f"{100 * area.share:.1f}%"
            reference_point = f"({show(area.reference[0])}, {show(area.reference[1])})"
            rows.append((split, *encoder, reference_point, f"{1e4 * area.front:.1f}", oracle, share))
        elif reference:
            rows.append((split, *encoder, *(ABSENT,) * 4))
    return TextTable(columns, tuple(rows), frozenset({"split"}))


def trial_table(summary: Summary) -> TextTable:
    """Every trial by its number, with its best dev point under the objective, in parentheses if that misses a constraint."""
    names = varied_parameters(summary.results.trials)
    columns = ("trial", "configuration", "status", "reason", "rungs", "examples", "objective", "P", "S", "seconds")
    rows = []
    for each in summary.trials:
        trial, best = each.trial, each.best
        objective = show(each.objective) if each.is_feasible else f"({show(each.objective)})"
        scores = (objective, show(best.polarity), show(best.similarity)) if best else (ABSENT,) * 3
        examples = f"{each.rungs[-1].examples_seen:,}" if each.rungs else ABSENT
        rungs = str(len(each.rungs))
        configuration = describe(trial.config, names)
        if trial.replicate_of is not None:
            configuration += f", repeats trial {trial.replicate_of}"
        words = (configuration, signed(trial.status), trial.reason)
        rows.append((str(trial.trial), *words, rungs, examples, *scores, f"{trial.seconds:,.0f}"))
    return TextTable(columns, tuple(rows), frozenset({"configuration", "status", "reason"}))


def signed(status: str) -> str:
    """A trial's status after its sign."""
    return f"{SIGNS[status]}\N{NO-BREAK SPACE}{status}" if status in SIGNS else status


def cost_table(summary: Summary) -> TextTable:
    """What trials cost by how they ended, and in all; without GPU-hours and money where there are none."""
    found = summary.account
    entries = [*found.entries, found.total]
    columns: dict[str, Callable[[Entry], str]] = {
        "trials that are": lambda entry: signed(entry.kind),
        "trials": lambda entry: f"{entry.num_trials:,}",
        "rungs": lambda entry: f"{entry.num_rungs:,}",
        "seconds": lambda entry: f"{entry.cost.seconds:,.0f}",
        "share": lambda entry: f"{entry.cost.seconds / (found.total.cost.seconds or 1):.1%}",
        "CPU-hours": lambda entry: f"{entry.cost.cpu_seconds / 3600:,.2f}",
        "GPU-hours": lambda entry: f"{entry.cost.gpu_seconds / 3600:,.2f}",
        "money": lambda entry: f"{entry.cost.money:,.2f}",
        "seconds saved": lambda entry: f"{entry.saved_seconds:,.0f}" if entry.saved_seconds else ABSENT,
    }
    if not found.total.cost.gpu_seconds:
        del columns["GPU-hours"]
    if not found.priced:
        del columns["money"]
    rows = tuple(tuple(cell(entry) for cell in columns.values()) for entry in entries)
    return TextTable(tuple(columns), rows, frozenset({"trials that are"}))


def mean_table(summary: Summary) -> TextTable:
    """Front members whose configuration was run more than once: means over the runs on dev, ± their standard deviation."""
    originals = {trial.trial: trial.replicate_of for trial in summary.results.trials}
    means = {(mean.trial, mean.step, mean.kind, mean.value): mean for mean in summary.results.means}
    rows = []
    for member in summary.members:
        point = member.dev
        assert point.trial is not None and point.step is not None
        original = originals[point.trial]
        mean = means.get((point.trial if original is None else original, point.step, *point.key))
        if mean is not None:
            own = (str(point.trial), str(point.step), kind_name(point), show(point.polarity), show(point.similarity))
            polarity = f"{show(mean.polarity)} ± {show(mean.polarity_spread)}"
            similarity = f"{show(mean.similarity)} ± {show(mean.similarity_spread)}"
            rows.append((*own, str(mean.runs), polarity, similarity))
    columns = ("trial", "step", "kind", "P", "S", "runs", "mean P", "mean S")
    return TextTable(columns, tuple(rows), frozenset({"kind"}))


def trial_counts(summary: Summary) -> str:
    """How many trials of the search have begun, such as ``12 of 24, and 3 replicates``."""
    trials = summary.results.trials
    replicates = sum(trial.replicate_of is not None for trial in trials)
    begun = f"{len(trials) - replicates} of {summary.results.info.num_trials}"
    return begun + (f", and {replicates} replicates" if replicates else "")


def settings(summary: Summary) -> list[tuple[str, str]]:
    """What was swept and how, as (name, value) pairs."""
    results, info = summary.results, summary.results.info
    states = [trial.status for trial in results.trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    names = varied_parameters(results.trials)
    config = results.trials[0].config if results.trials else {}
    common = ", ".join(f"{n} {short(v)}" for n, v in config.items() if n not in names and v is not None)
    return [
        ("status", f"{results.status} ({results.reason})" if results.reason else results.status),
        ("trials", trial_counts(summary) + (f": {counts}" if counts else "")),
        ("seconds", f"{results.seconds:,.0f}" if results.seconds else ABSENT),
        ("dataset", info.dataset),
        ("labels", ", ".join(info.label_names)),
        ("queries", ", ".join(f"{split} {count:,}" for split, count in info.num_queries.items())),
        ("retrieval pool", ", ".join(f"{split} {count:,}" for split, count in info.num_pool.items())),
        ("model", info.model),
        ("reference encoder R", info.reference),
        ("retrieval", f"k = {info.k}, {info.rank_weights} rank weights"),
        ("objective", objective_formula(info)),
        ("constraints", constraints_text(info) or ABSENT),
        ("common to all trials", common or ABSENT),
        ("seed", str(info.seed)),
        ("raysweep", info.version),
    ]
