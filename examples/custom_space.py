"""Define a search space: one YAML file with the parameters, the data and the budget.

python custom_space.py
"""

from pathlib import Path

import raysweep

SPACE = """
name: temperatures
data: {train: demo, max_dev: 60}
model: demo
examples: {k: 8, target: 2000}
evaluation: {k: 8, num_pool: 200}
space:
  loss:
    choices:                      # parameters of a loss are nested under it
      multiple_negatives: {scale: {choices: [5, 20, 50]}}
      triplet: {margin: {low: 0.05, high: 0.5, log: true}}
  learning_rate: {low: 1e-5, high: 2e-4, log: true}
  freezing: emb+B0-4
  batch_size: 16
  examples_per_rung: 32
objective: {polarity_weight: 0.7, constraints: {retention: 0.8}}
budget: {trials: 2, rungs: 2}
"""


def main() -> None:
    Path("temperatures.yaml").write_text(SPACE, encoding="utf-8")
    sweep = raysweep.load_sweep("temperatures.yaml")
    print("\n".join(sweep.space.describe()))
    results = raysweep.run_sweep(sweep, on_progress=print)
    print(
        results.front[["point", "is_feasible", "dev_polarity", "dev_retention"]].to_string(
            index=False
        )
    )


if __name__ == "__main__":
    main()
