"""Samplers on functions with a known optimum, in continuous spaces, which recordings cannot cover.

The functions are a six-dimensional bowl; Hartmann's function of six parameters; Branin's, shifted further along its
first parameter at smaller training budgets, so that early and final optima differ; a conditional space; and a mixed one
of ranges, whole numbers, ordered and unordered choices. The last three have four budgets (1, 2, 4 and 8), and two of
three trials, chosen by the seed, stop after the first budget; in the others, each trial has one budget.

The regret after 100 trials is the gap between the best trial, at the largest budget, and the function's maximum,
divided by the function's range; its median over seeds is reported. Regrets below 0.1% count as equal. Every sampler
learns from every rung it can: Optuna's samplers receive stopped trials as pruned, with their intermediate value.
"""

import math
import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna

from benchmarks import measure
from raysweep.config.space import Choices, Range, Space
from raysweep.search.proposer import make_sampler

NUM_TRIALS = 100
EQUAL = 0.001  # regrets below this are no difference
BUDGETS = (1, 2, 4, 8)
STOPPED_SHARE = 2 / 3
SEEDS = {"mfgp": 50, "tpe": 50, "random": 50, "gp": 20}

Params = Mapping[str, Any]


@dataclass(frozen=True)
class Problem:
    """A space, and the value of a configuration after a budget: 1 at the best, 0 at the worst."""

    space: Space
    value: Callable[[Params, int], float]
    budgets: tuple[int, ...]


def main() -> None:
    parser = measure.parser("benchmarks.search_functions", __doc__)
    parser.add_argument("--samplers", type=lambda text: text.split(","), default=list(SEEDS))
    parser.add_argument("--problems", type=lambda text: text.split(","), default=list(PROBLEMS))
    parser.add_argument(
        "--seed",
        type=int,
        default=1000,
        help="the first; constants were chosen on those below 1000",
    )
    parser.add_argument("--seeds", type=int, help=f"of each sampler: {SEEDS}; with --quick 3")
    arguments = parser.parse_args()
    machine = measure.machine()
    rows: dict[str, dict[str, list[float]]] = {}
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(mp_context=context) as pool:
        for problem in arguments.problems:
            rows[problem] = {}
            for sampler in arguments.samplers:
                count = arguments.seeds or (3 if arguments.quick else SEEDS[sampler])
                seeds = range(arguments.seed, arguments.seed + count)
                regrets = list(pool.map(regret_of, [problem] * count, [sampler] * count, seeds))
                rows[problem][sampler] = regrets
                low, median, high = np.quantile(regrets, [0.25, 0.5, 0.75]).tolist()
                print(
                    f"{problem:12} {sampler:8} {count:3} seeds: regret {100 * median:.3f}%, "
                    f"quartiles {100 * low:.3f} to {100 * high:.3f}%",
                    flush=True,
                )
    figures = {"regrets": rows, "seed": arguments.seed, **_concluded(rows)}
    measure.finish("search_functions", figures, machine, arguments.json)


def _concluded(rows: Mapping[str, Mapping[str, list[float]]]) -> dict[str, Any]:
    """Return the share of comparisons with the peers in which ``mfgp`` has no larger median regret."""
    held: dict[str, bool] = {}
    for problem, regrets in rows.items():
        medians = {sampler: float(np.median(values)) for sampler, values in regrets.items()}
        peers = [sampler for sampler in medians if sampler != "mfgp"]
        if "mfgp" in medians:
            own = max(medians["mfgp"], EQUAL)
            held |= {f"{problem}, {peer}": own <= max(medians[peer], EQUAL) for peer in peers}
    if not held:
        return {}
    missed = [name for name, is_held in held.items() if not is_held]
    print(
        f"\nratio: {np.mean(list(held.values())):.3f}, of comparisons in which mfgp's median regret is no larger"
    )
    print(f"larger on: {'; '.join(missed) or 'none'}")
    return {"ratio": float(np.mean(list(held.values()))), "larger_on": missed}


def regret_of(problem_name: str, sampler: str, seed: int) -> float:
    """Return the regret of a search's best trial at the largest budget."""
    problem = PROBLEMS[problem_name]
    random = np.random.default_rng([seed, 1])
    goes_on = random.random(NUM_TRIALS) >= STOPPED_SHARE
    budgets = [problem.budgets if on else problem.budgets[:1] for on in goes_on]
    tried = _search(problem, sampler, seed, budgets)
    best = max(problem.value(params, problem.budgets[-1]) for params in tried)
    return 1 - best


def _search(problem: Problem, name: str, seed: int, budgets: list[tuple[int, ...]]) -> list[Params]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        direction="maximize", sampler=make_sampler(name, seed, problem.space)
    )
    tried: list[Params] = []
    for seen in budgets:
        trial = study.ask()
        problem.space.draw(trial)
        params = trial.params
        values = [problem.value(params, budget) for budget in seen]
        for budget, value in zip(seen, values, strict=True):
            trial.report(value, budget)
        if seen[-1] == problem.budgets[-1]:
            study.tell(trial, values[-1])
        else:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        tried.append(params)
    return tried


def _unit(name: str) -> dict[str, Range]:
    return {name: Range(0.0, 1.0, log=False, integer=False)}


UNIT_6 = Space(
    {name: parameter for axis in range(6) for name, parameter in _unit(f"x{axis}").items()}
)

BOWL_CENTER = np.array([0.2, 0.4, 0.6, 0.8, 0.3, 0.7])
BOWL_DEPTH = float((np.maximum(BOWL_CENTER, 1 - BOWL_CENTER) ** 2).sum())


def bowl(params: Params, _: int) -> float:
    """Return 1 in the middle, decreasing with the squared distance from it."""
    return 1 - float(((_point(params) - BOWL_CENTER) ** 2).sum()) / BOWL_DEPTH


# Dixon and Szego, "Towards Global Optimisation 2" (1978); the greatest value is 3.32237, the least 0.
HARTMANN_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
HARTMANN_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)
HARTMANN_MAX = 3.32237


def hartmann(params: Params, _: int) -> float:
    """Return Hartmann's function of six parameters."""
    distances = (HARTMANN_A * (_point(params) - HARTMANN_P) ** 2).sum(axis=1)
    return float(HARTMANN_ALPHA @ np.exp(-distances)) / HARTMANN_MAX


def _point(params: Params) -> Any:
    return np.array([params[f"x{axis}"] for axis in range(6)])


BRANIN = Space(
    {
        "x": Range(-5.0, 10.0, log=False, integer=False),
        "y": Range(0.0, 15.0, log=False, integer=False),
    }
)
BRANIN_MIN, BRANIN_MAX = 0.397887, 308.129
FIRST_SHIFT = 4.0  # of 15: how far the function lies to the right at the smallest budget


def moving_branin(params: Params, budget: int) -> float:
    """Return the logarithm of Branin's function, shifted at smaller budgets; with it the three valleys fill the range."""
    shift = FIRST_SHIFT * (1 - math.log2(budget) / math.log2(BUDGETS[-1]))
    x, y = params["x"] - shift, params["y"]
    b, c = 5.1 / (4 * math.pi**2), 5 / math.pi
    value = (y - b * x**2 + c * x - 6) ** 2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10
    return math.log(BRANIN_MAX / value) / math.log(BRANIN_MAX / BRANIN_MIN)


CONDITIONAL = Space(
    {
        "loss": Choices(
            {
                "triplet": {"margin": Range(0.01, 10.0, log=True, integer=False)} | _unit("swap"),
                "contrastive": _unit("margin"),
                "softmax": {},
            }
        ),
        "learning_rate": Range(1e-6, 1e-3, log=True, integer=False),
    }
)


def conditional(params: Params, budget: int) -> float:
    """Return a function that is best at triplet and a learning rate of 3e-5, and at larger rates for small budgets."""
    best_rate = math.log10(3e-5) + 0.5 * (1 - math.log2(budget) / math.log2(BUDGETS[-1]))
    of_rate = math.exp(-((math.log10(params["learning_rate"]) - best_rate) ** 2))
    match params["loss"]:
        case "triplet":
            off_margin = (math.log10(params["loss=triplet.margin"]) + 1) / 3
            worth = 1.0 - off_margin**2 - 0.3 * (params["loss=triplet.swap"] - 0.6) ** 2
        case "contrastive":
            worth = 0.85 - 0.4 * (params["loss=contrastive.margin"] - 0.5) ** 2
        case _:
            worth = 0.8
    return float(worth) * of_rate * (0.7 + 0.1 * math.log2(budget))


MIXED = Space(
    {
        "learning_rate": Range(1e-6, 1e-3, log=True, integer=False),
        "layers": Range(0, 6, log=False, integer=True),
        "batch_size": Choices({size: {} for size in (8, 16, 32, 64, 128)}),
        "optimizer": Choices({name: {} for name in ("adamw", "sgd", "adamax", "lion")}),
        "dropout": Range(0.0, 0.5, log=False, integer=False),
    }
)
OPTIMIZER_WORTH = {"adamw": 1.0, "adamax": 0.95, "lion": 0.8, "sgd": 0.6}


def mixed(params: Params, budget: int) -> float:
    """Return a function that is best with adamw, a rate that fits the batch size, two frozen layers and a dropout of 0.1."""
    best_rate = -4.5 + 0.3 * math.log2(params["batch_size"] / 32)
    of_rate = math.exp(-((math.log10(params["learning_rate"]) - best_rate) ** 2))
    of_layers = 1 - ((params["layers"] - 2) / 6) ** 2
    of_dropout = 1 - (params["dropout"] - 0.1) ** 2
    worth = OPTIMIZER_WORTH[params["optimizer"]] * of_rate * of_layers * of_dropout
    return float(worth) * (0.7 + 0.1 * math.log2(budget))


PROBLEMS = {
    "bowl": Problem(UNIT_6, bowl, (1,)),
    "hartmann": Problem(UNIT_6, hartmann, (1,)),
    "branin": Problem(BRANIN, moving_branin, BUDGETS),
    "conditional": Problem(CONDITIONAL, conditional, BUDGETS),
    "mixed": Problem(MIXED, mixed, BUDGETS),
}


if __name__ == "__main__":
    from benchmarks import search_functions

    search_functions.main()
