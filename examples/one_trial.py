"""Run one trial in this process, without Ray, so that a debugger can step through it.

python one_trial.py
"""

import raysweep


def main() -> None:
    sweep = raysweep.load_sweep("smoke")
    prepared = raysweep.prepare_sweep(sweep, in_process=True)
    config = raysweep.trial_config(
        loss="triplet",
        margin=0.2,
        learning_rate=1e-4,
        freezing="emb+B0-3",
        batch_size=32,
        examples_per_rung=128,
    )
    rungs = raysweep.run_trial(config, prepared, num_rungs=2, evaluation=sweep.config.evaluation)
    for rung in rungs:
        print(
            f"{rung.examples_seen} examples: P {100 * rung.polarity:.1f}, S {100 * rung.similarity:.1f}"
        )


if __name__ == "__main__":
    main()
