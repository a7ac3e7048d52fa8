"""Propose configurations with your own Optuna sampler, given by its import path.

python custom_sampler.py
"""

from typing import Any

import optuna

import raysweep


class CoolingSampler(optuna.samplers.RandomSampler):
    """Sample learning rates from a shrinking lower part of their range, and everything else at random."""

    def sample_independent(
        self,
        study: optuna.Study,
        trial: Any,
        param_name: str,
        param_distribution: optuna.distributions.BaseDistribution,
    ) -> Any:
        if param_name == "learning_rate" and isinstance(
            param_distribution, optuna.distributions.FloatDistribution
        ):
            low, high = param_distribution.low, param_distribution.high
            highest = max(low * 2, high / 2**trial.number)
            param_distribution = optuna.distributions.FloatDistribution(low, highest, log=True)
        return super().sample_independent(study, trial, param_name, param_distribution)


def main() -> None:
    overrides = {"name": "cooling", "sampler": "custom_sampler:CoolingSampler", "budget.trials": 2}
    sweep = raysweep.load_sweep("smoke", overrides)
    results = raysweep.run_sweep(sweep, on_progress=print)
    print(
        results.trials[["trial", "status", "config_loss", "config_learning_rate"]].to_string(
            index=False
        )
    )


if __name__ == "__main__":
    main()
