"""From a sweep's configuration to what decides it: the goal, the proposals, the stopper."""

from raysweep.config import EarlyStoppingConfig, ObjectiveConfig, SweepConfig
from raysweep.decisions import Decisions
from raysweep.goal import Goal, Pair
from raysweep.growth import Growth
from raysweep.proposals import Proposals
from raysweep.replicates import Replicates
from raysweep.space import Space
from raysweep.stopping import KeepAll, Median, ParetoHalving, Stopper, SuccessiveHalving


def goal_of(objective: ObjectiveConfig, reference: Pair) -> Goal:
    """The goal under an objective, where the reference encoder scores ``reference`` (P, S) on dev."""
    return Goal.of(objective.polarity_weight, objective.similarity, objective.constraints.model_dump(), reference)


def stopper_of(rule: EarlyStoppingConfig, goal: Goal, reference: Pair | None) -> Stopper:
    """A fresh stopper of the policy that the configuration names.

    ``reference`` is what a trial scores before it is trained, None if that is not known.
    """
    if rule.policy == "growth":
        return Growth(goal.feasible_corner, reference, goal.corner)
    if rule.policy == "none":
        return KeepAll()
    if rule.policy == "median":
        return Median(rule.first_examples)
    kinds = {"asha": SuccessiveHalving, "pareto": ParetoHalving}
    return kinds[rule.policy](rule.first_examples, rule.reduction_factor)


def decisions_of(config: SweepConfig, space: Space, reference: Pair, *, seed_offset: int = 0) -> Decisions:
    """All that decides a sweep, at its beginning."""
    goal = goal_of(config.objective, reference)
    seed = (config.seed + seed_offset) % 2**32
    proposals = Proposals(space, config.sampler, seed, goal, config.objective.proposals)
    plateau = config.early_stopping.plateau
    # An untrained trial scores as the reference does, unless that is another encoder.
    untrained = reference if config.reference_encoder == config.model else None
    return Decisions(
        proposals,
        stopper_of(config.early_stopping, goal, untrained),
        goal,
        config.budget.trials,
        (plateau.trials, plateau.growth) if plateau else None,
        Replicates(config.replicates.trials, config.replicates.runs),
    )
