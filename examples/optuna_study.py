"""Use raysweep's sampler in any Optuna study, independent of raysweep sweeps.

python optuna_study.py
"""

import math

import optuna

from raysweep import MultiFidelitySampler


def train(trial: optuna.Trial) -> float:
    """Return the final loss of a made-up learning curve that stands in for a model's."""
    optimizer = trial.suggest_categorical("optimizer", ["sgd", "adam"])
    learning_rate = trial.suggest_float("learning_rate", 1e-5, 1.0, log=True)
    momentum = trial.suggest_float("momentum", 0.0, 0.99) if optimizer == "sgd" else 0.9
    best_rate = 1e-2 if optimizer == "sgd" else 1e-3
    speed = math.exp(-(math.log10(learning_rate / best_rate) ** 2)) * (1 - (momentum - 0.9) ** 2)
    loss = 1.0
    for epoch in range(1, 17):
        loss = (0.05 if optimizer == "adam" else 0.1) + 0.9 * math.exp(-0.3 * speed * epoch)
        trial.report(loss, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return loss


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = MultiFidelitySampler(seed=0)
    study = optuna.create_study(
        sampler=sampler, pruner=optuna.pruners.SuccessiveHalvingPruner(), direction="minimize"
    )
    study.optimize(train, n_trials=60)
    num_pruned = len(study.get_trials(states=[optuna.trial.TrialState.PRUNED]))
    print(
        f"best of {len(study.trials)} trials, {num_pruned} of them pruned: loss {study.best_value:.4f}"
    )
    print(f"with {study.best_params}")


if __name__ == "__main__":
    main()
