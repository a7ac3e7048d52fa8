"""Text tables for the terminal, Markdown and HTML. Scores are shown x100."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from raysweep.metrics.scores import Goals, spec_of
from raysweep.output import ABSENT, TextTable, counted
from raysweep.report.baselines import dominates
from raysweep.report.front import Member
from raysweep.report.statuses import standing, with_sign
from raysweep.report.summary import SPLITS, Area, Summary, TrialSummary
from raysweep.report.texts import constraints_text, objective_formula
from raysweep.results.account import Entry
from raysweep.results.query_scores import PointName, name_of_point
from raysweep.results.types import QUERY_KINDS, GuardScore, Mean, Point, Prompt, Results
from raysweep.results.views import varied_parameters
from raysweep.uncertainty.differences import Difference
from raysweep.uncertainty.front import FrontUncertainty
from raysweep.uncertainty.interval import Interval, ScoreIntervals

MISSES = "misses"  # mark of front members that violate a constraint
REINDEX = "re-index"  # heading of the column that shows which documents must be re-embedded


def show(score: float, digits: int = 1) -> str:
    """Format a score in [0, 1], multiplied by 100."""
    return f"{100 * score:.{digits}f}"


def show_pair(point: Point, goals: Goals, digits: int = 1) -> str:
    """Format a point's P and S, such as ``P 70.0, S 40.0``."""
    scores = zip(goals.headings, point.pair(goals), strict=True)
    return ", ".join(f"{heading} {show(score, digits)}" for heading, score in scores)


def show_area(area: float) -> str:
    """Format a hypervolume, converted from scores in [0, 1] to scores x100."""
    return f"{1e4 * area:.1f}"


def show_share(share: float | None) -> str:
    return ABSENT if share is None else f"{100 * share:.1f}%"


def show_interval(interval: Interval | None, show_bound: Callable[[float], str] = show) -> str:
    """Format an interval, or return ``ABSENT`` if it is missing or infinite."""
    if interval is None or not math.isfinite(interval.low + interval.high):
        return ABSENT
    return f"[{show_bound(interval.low)}, {show_bound(interval.high)}]"


def with_interval(
    score: float, interval: Interval | None, show_score: Callable[[float], str] = show
) -> str:
    """Format a score, followed by its interval if it has one."""
    bounds = show_interval(interval, show_score)
    return show_score(score) if bounds == ABSENT else f"{show_score(score)} {bounds}"


def short(value: Any) -> str:
    """Format a hyperparameter's value, with three significant digits for floats."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def describe(config: Mapping[str, Any], names: Iterable[str]) -> str:
    """Format the parameters ``names`` on one line, omitting those that are missing or None."""
    terms = []
    for name in names:
        value = config.get(name)
        if value is not None:
            terms.append(short(value) if name == "loss" else f"{name} {short(value)}")
    return ", ".join(terms) or ABSENT


def described(results: Results) -> dict[int, str]:
    """Return each trial's searched or varying parameters as text, keyed by trial number."""
    varied = varied_parameters(results.trials, results.info.searched)
    return {trial.trial: describe(trial.config, varied) for trial in results.trials}


def kind_name(point: Point) -> str:
    """Return an operating point's kind and its parameter, such as ``concat(0.3)``."""
    return point.kind if point.value is None else f"{point.kind}({point.value:g})"


def identity_cells(point: Point) -> list[str]:
    return [str(point.trial), str(point.step), kind_name(point)]


def front_table(summary: Summary) -> TextTable:
    """Return a table of the front, sorted by decreasing S on dev. :func:`certainty_table` adds intervals.

    If any trial tunes only one tower, the ``re-index`` column shows which documents must be re-embedded
    to use a member.
    """
    configurations = described(summary.results)
    guards = summary.guards
    has_towers = any(
        trial.config.get("tower", "both") != "both" for trial in summary.results.trials
    )
    rows = []
    for member in summary.members:
        point = member.dev
        marks = " ".join(member_marks(member))
        configuration = configurations.get(point.trial or 0, ABSENT)
        row = [marks, *identity_cells(point), str(point.width), configuration]
        if has_towers:
            row.append("nothing" if point.kind in QUERY_KINDS else "everything")
        for split in summary.splits:
            row += score_cells(member.on(split), summary.score_names)
        row += [guard_cell(member.guards.get(name)) for name in guards]
        rows.append(tuple(row))
    headings = score_headings(summary.score_names)
    scores = [f"{split} {heading}" for split in summary.splits for heading in headings]
    first_columns = [
        "mark",
        "trial",
        "step",
        "kind",
        "width",
        "configuration",
        *[REINDEX] * has_towers,
    ]
    columns = (*first_columns, *scores, *guards)
    return TextTable(columns, tuple(rows), frozenset({"kind", "configuration", "mark", REINDEX}))


def member_marks(member: Member) -> list[str]:
    return mark_names(
        is_knee=member.is_knee, is_best=member.is_best, is_feasible=member.is_feasible
    )


def guard_cell(measured: GuardScore | None) -> str:
    """Return a guard's score x100, in parentheses if it is below its limit."""
    if measured is None:
        return ABSENT
    return show(measured.score) if measured.is_met else f"({show(measured.score)})"


def mark_names(*, is_knee: bool, is_best: bool, is_feasible: bool) -> list[str]:
    shown = {"★ knee": is_knee, "◆ best": is_best, MISSES: not is_feasible}
    return [mark for mark, applies in shown.items() if applies]


def score_headings(names: Iterable[str]) -> list[str]:
    """Return the headings of scores, such as P for polarity."""
    return [spec_of(name).heading for name in names]


def score_cells(
    point: Point | None, names: Sequence[str], intervals: Mapping[str, Interval] | None = None
) -> tuple[str, ...]:
    """Return a cell for each named score, including its interval if it has one."""
    if point is None:
        return (ABSENT,) * len(names)
    cells = []
    for name in names:
        score = point.get(name)
        interval = (intervals or {}).get(name)
        cells.append(ABSENT if score is None else with_interval(score, interval))
    return tuple(cells)


def baseline_table(summary: Summary) -> TextTable:
    """Return a table of the baselines: their scores, and how many front members dominate them."""
    measured = {split for baseline in summary.baselines for split in baseline.points}
    splits = [split for split in SPLITS if split in measured]
    rows = []
    for baseline in summary.baselines:
        width = ABSENT if baseline.width is None else str(baseline.width)
        row = [baseline.name, width]
        for split in splits:
            point = baseline.points.get(split)
            front = summary.front.on(split)
            intervals = None if point is None else summary.intervals_of(point)
            row += score_cells(point, summary.score_names, intervals)
            dominated_by = ABSENT
            if point is not None and front:
                num_dominating = sum(dominates(member, point, summary.goals) for member in front)
                dominated_by = f"{num_dominating} of {len(front)}" if num_dominating else "none"
            row.append(dominated_by)
        rows.append(tuple(row))
    columns = ["baseline", "width"]
    headings = [*score_headings(summary.score_names), "dominated by"]
    columns += [f"{split} {heading}" for split in splits for heading in headings]
    return TextTable(tuple(columns), tuple(rows), frozenset({"baseline"}))


def area_table(summary: Summary) -> TextTable:
    """Return a table of the hypervolumes of the front and the oracle on each split."""
    rows = []
    for split in SPLITS:
        reference = summary.references.get(split)
        if reference is None:
            continue
        start = front = oracle = share = ABSENT
        area = summary.areas.get(split)
        if area is not None:
            polarity, similarity = area.reference_point
            start = f"({show(polarity)}, {show(similarity)})"
            front, share = area_texts(area, summary.uncertainty.get(split))
            oracle = ABSENT if area.oracle is None else show_area(area.oracle)
        row = (split, *map(show, reference.pair(summary.goals)), start, front, oracle, share)
        rows.append(row)
    p, s = summary.goals.headings
    columns = (
        "split",
        f"{p} of R",
        f"{s} of R",
        f"hypervolume above ({p}, {s})",
        "front",
        "oracle front",
        "share",
    )
    return TextTable(columns, tuple(rows), frozenset({"split"}))


def area_texts(area: Area, uncertainty: FrontUncertainty | None) -> tuple[str, str]:
    """Format a front's hypervolume and its share of the oracle's, with intervals if available."""
    front, share = show_area(area.front), show_share(area.share)
    if uncertainty is not None:
        front += f" {show_interval(uncertainty.hypervolume, show_area)}"
        share += f" {show_interval(uncertainty.share, show_share)}"
    return front, share


def certainty_table(summary: Summary) -> TextTable:
    """Return a table of the front with intervals. It is empty if per-query scores are not stored."""
    certainty = summary.certainty
    splits = [split for split in SPLITS if split in certainty.fronts]
    rows = []
    for member in summary.members if splits else ():
        point = member.dev
        name = name_of_point(point)
        row = identity_cells(point)
        for split in splits:
            uncertainty = certainty.fronts[split].members.get(name)
            row += _interval_cells(uncertainty, summary.goals)
            stability = knee_share = ABSENT
            if uncertainty is not None:
                mark = " ★" if uncertainty.in_knee_region else ""
                stability = f"{uncertainty.stability:.0%}"
                knee_share = f"{uncertainty.knee_share:.0%}{mark}"
            row += [stability, knee_share]
        from_knee = certainty.from_knee.get(name)
        if from_knee is None:
            row += [ABSENT, ABSENT]
        else:
            row.append(_difference_cell(from_knee.polarity))
            row.append(_difference_cell(from_knee.similarity))
        rows.append(tuple(row))
    columns = ["trial", "step", "kind"]
    p, s = summary.goals.headings
    score_columns = [*score_headings(summary.goals.main_scores), "stability", "knee"]
    columns += [f"{split} {name}" for split in splits for name in score_columns]
    compared_on = certainty.compared_on
    columns += [f"{compared_on} {p} minus knee's", f"{compared_on} {s} minus knee's"]
    return TextTable(tuple(columns), tuple(rows), frozenset({"kind"}))


def _difference_cell(difference: Difference) -> str:
    asterisk = "*" if difference.is_real() else ""
    estimate = 100 * (round(difference.estimate, 3) + 0.0)  # avoids -0.0
    return f"{estimate:+.1f}{asterisk} {show_interval(difference.interval)}"


def trial_table(summary: Summary) -> TextTable:
    """Return a table of the trials with their best points on dev."""
    varied = varied_parameters(summary.results.trials, summary.results.info.searched)
    goals = summary.goals
    first_columns = ("trial", "configuration", "status", "reason", "rungs", "examples", "objective")
    columns = (*first_columns, *goals.headings, "seconds")
    rows = []
    for trial_summary in summary.trials:
        trial, best, rungs = trial_summary.trial, trial_summary.best, trial_summary.rungs
        configuration = describe(trial.config, varied)
        if trial.replicate_of is not None:
            configuration += f", repeats trial {trial.replicate_of}"
        row = (
            str(trial.trial),
            configuration,
            with_sign(standing(trial)),
            trial.reason,
            str(len(rungs)),
            f"{rungs[-1].examples_seen:,}" if rungs else ABSENT,
            objective_cell(trial_summary),
            *score_cells(best, goals),
            f"{trial.seconds:,.0f}",
        )
        rows.append(row)
    return TextTable(columns, tuple(rows), frozenset({"configuration", "status", "reason"}))


def objective_cell(trial_summary: TrialSummary) -> str:
    """Format the objective of a trial's best point, in parentheses if the point violates a constraint."""
    if trial_summary.best is None:
        return ABSENT
    objective = show(trial_summary.objective)
    return objective if trial_summary.is_feasible else f"({objective})"


def cost_table(summary: Summary) -> TextTable:
    """Return a table of costs by trial status, with a total."""
    account = summary.account
    total = account.total.cost
    columns: dict[str, Callable[[Entry], str]] = {
        "status": lambda entry: with_sign(entry.kind),
        "trials": lambda entry: f"{entry.num_trials:,}",
        "rungs": lambda entry: f"{entry.num_rungs:,}",
        "seconds": lambda entry: f"{entry.cost.seconds:,.0f}",
        "share": lambda entry: f"{entry.cost.seconds / (total.seconds or 1):.1%}",
        "CPU-hours": lambda entry: _hours(entry.cost.cpu_seconds),
        "GPU-hours": lambda entry: _hours(entry.cost.gpu_seconds),
        "money": lambda entry: f"{entry.cost.money:,.2f}",
        "seconds saved": lambda entry: (
            f"{entry.saved_seconds:,.0f}" if entry.saved_seconds else ABSENT
        ),
    }
    if not total.gpu_seconds:
        del columns["GPU-hours"]
    if not account.priced:
        del columns["money"]
    entries = [*account.entries, account.total]
    rows = tuple(tuple(cell(entry) for cell in columns.values()) for entry in entries)
    return TextTable(tuple(columns), rows, frozenset({"status"}))


def bill_table(summary: Summary) -> TextTable:
    """Return a table of costs by node type. It is empty if the sweep has no prices."""
    bill = summary.bill
    rows = []
    for node in bill.nodes:
        price = money = ABSENT
        if node.price_per_hour is not None:
            price = f"{node.price_per_hour:g}"
            money = f"{node.boot_money + node.up_money:,.2f}"
        row = (node.type, _hours(node.boot_seconds), _hours(node.up_seconds), price, money)
        rows.append(row)
    if rows:
        boot_seconds = sum(node.boot_seconds for node in bill.nodes)
        up_seconds = sum(node.up_seconds for node in bill.nodes)
        total = ("all", _hours(boot_seconds), _hours(up_seconds), ABSENT, f"{bill.total:,.2f}")
        rows.append(total)
    columns = ("node type", "hours booting", "hours up", "price per hour", "money")
    return TextTable(columns, tuple(rows), frozenset({"node type"}))


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.2f}"


def mean_table(summary: Summary) -> TextTable:
    """Return a table of the front members whose configuration ran more than once.

    It shows the mean and standard deviation over runs on dev. If per-query scores are stored, it also shows
    intervals for each configuration.
    """
    results, goals = summary.results, summary.goals
    replicated = summary.certainty.replicated
    means: dict[PointName, Mean] = {}
    for mean in results.means:
        means[mean.trial, mean.step, mean.kind, mean.value] = mean
    originals = {trial.trial: trial.replicate_of for trial in results.trials}
    rows = []
    for member in summary.members:
        point = member.dev
        assert point.trial is not None
        original = originals[point.trial]
        trial = point.trial if original is None else original
        name = (trial, point.step, point.kind, point.value)
        if name not in means:
            continue
        mean = means[name]
        row = identity_cells(point)
        row += [*score_cells(point, goals), str(mean.runs)]
        for goal in goals:
            deviation = mean.scores[goal].std or 0.0
            row.append(f"{show(mean[goal])} ± {show(deviation)}")
        if replicated:
            row += _interval_cells(replicated.get(name), goals)
        rows.append(tuple(row))
    p, s = goals.headings
    columns = ["trial", "step", "kind", p, s, "runs", f"mean {p}", f"mean {s}"]
    if replicated:
        columns += [f"{heading} interval" for heading in score_headings(goals.main_scores)]
    return TextTable(tuple(columns), tuple(rows), frozenset({"kind"}))


def _interval_cells(intervals: ScoreIntervals | None, goals: Goals) -> list[str]:
    named = {} if intervals is None else intervals.named(goals)
    return [show_interval(named.get(name)) for name in goals.main_scores]


def trial_counts(summary: Summary) -> str:
    """Return the number of started trials, such as ``12 of 24, and 3 replicates``."""
    trials = summary.results.trials
    num_replicates = sum(trial.replicate_of is not None for trial in trials)
    started = f"{len(trials) - num_replicates} of {summary.results.info.num_trials}"
    return f"{started}, and {counted(num_replicates, 'replicate')}" if num_replicates else started


def settings_table(summary: Summary) -> TextTable:
    """Return a table of the sweep's settings, data and status."""
    results = summary.results
    info = results.info
    status: str = results.status
    if results.reason:
        status += f" ({results.reason})"
    trials = trial_counts(summary)
    counts = Counter(standing(trial) for trial in results.trials)
    if counts:
        listed = [f"{count} {name}" for name, count in counts.items()]
        trials += f": {', '.join(listed)}"
    seconds = f"{results.seconds:,.0f}" if results.seconds else ABSENT
    constraints = constraints_text(info) or ABSENT
    active_sets = ", ".join(f"{name} {share:.1%}" for name, share in info.active_sets)
    packages = [f"{name} {version}" for name, version in info.packages.items()]
    if info.is_related:
        data = [
            ("kind of data", info.data_kind),
            ("queries or groups", _by_split(info.num_queries)),
        ]
        data.append(("ranked sentences", _by_split(info.num_pool)))
        retrieval = "each query's documents, by cosine"
    else:
        data = [("labels", ", ".join(info.label_names)), ("queries", _by_split(info.num_queries))]
        data.append(("retrieval pool", _by_split(info.num_pool)))
        retrieval = f"k = {info.k}, {info.rank_weights} rank weights"
    rows = (
        ("status", status),
        ("trials", trials),
        ("seconds", seconds),
        ("dataset", info.dataset),
        *data,
        ("model", info.model),
        ("prompt", shown_prompt(info.prompt)),
        ("reference encoder R", info.reference),
        ("prompt of R", shown_prompt(info.reference_prompt)),
        *([("experts' active sets", active_sets)] if active_sets else []),
        ("retrieval", retrieval),
        ("objective", objective_formula(info)),
        ("constraints", constraints),
        ("common to all trials", _common_parameters(results)),
        ("seed", str(info.seed)),
        ("raysweep", info.version),
        ("packages", ", ".join(packages) or ABSENT),
    )
    return TextTable(("setting", "value"), rows, frozenset({"setting", "value"}))


def _common_parameters(results: Results) -> str:
    """Return the parameters that have the same value in all trials."""
    trials = results.trials
    if not trials:
        return ABSENT
    varied = varied_parameters(trials, results.info.searched)
    config = trials[0].config
    terms = []
    for name, value in config.items():
        if name not in varied and value is not None:
            terms.append(f"{name} {short(value)}")
    return ", ".join(terms) or ABSENT


def shown_prompt(prompt: Prompt) -> str:
    """Format a prompt in quotes, which make a trailing space visible."""
    if isinstance(prompt, dict):
        return ", ".join(f"{side}: {shown_prompt(text)}" for side, text in prompt.items())
    return repr(prompt) if prompt else "none"


def _by_split(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{split} {count:,}" for split, count in counts.items())
