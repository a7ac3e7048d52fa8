"""The factory of early stopping policies."""

from raysweep.config.sweep import EarlyStoppingConfig
from raysweep.metrics.objective import Objective, Pair
from raysweep.search.stopping.base import EarlyStopper, KeepAll
from raysweep.search.stopping.growth import Growth
from raysweep.search.stopping.halving import ParetoHalving, SuccessiveHalving
from raysweep.search.stopping.median import Median


def make_early_stopper(rule: EarlyStoppingConfig, objective: Objective, reference: Pair | None) -> EarlyStopper:
    """Return a new policy of the configured kind.

    ``reference`` is the score of an untrained trial, or None if unknown.
    """
    if rule.policy == "growth":
        return Growth(objective.feasible_reference_point, reference, objective.reference_point)
    if rule.policy == "none":
        return KeepAll()
    if rule.policy == "median":
        return Median(rule.first_examples)
    kinds = {"asha": SuccessiveHalving, "pareto": ParetoHalving}
    return kinds[rule.policy](rule.first_examples, rule.reduction_factor)
