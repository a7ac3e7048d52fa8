"""Train with your own loss, given by its import path.

python custom_loss.py
"""

from typing import Literal

import torch

import raysweep
from raysweep.training.batch import Batch


class RankedTriplets(torch.nn.Module):
    """A triplet loss that ignores triplets which the reference encoder orders the other way round."""

    examples = "triplet"

    def __init__(
        self,
        model: torch.nn.Module,
        margin: float = 0.1,
        reduction: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__()
        self.margin = margin
        self.reduction = reduction

    def compute_loss(self, batch: Batch) -> torch.Tensor:
        differences = self._differences(batch.columns)
        is_kept = self._differences(batch.reference) < 0
        losses = torch.relu(differences + self.margin) * is_kept
        return losses.mean() if self.reduction == "mean" else losses.sum()

    @staticmethod
    def _differences(columns: list[torch.Tensor]) -> torch.Tensor:
        """Return the cosine of each anchor with its negative minus that with its positive."""
        anchor, positive, negative = columns
        cosine = torch.nn.functional.cosine_similarity
        return cosine(anchor, negative) - cosine(anchor, positive)


def main() -> None:
    overrides = {
        "name": "own-loss",
        "space.loss": "{choices: {'custom_loss:RankedTriplets': {margin: {low: 0.05, high: 0.5, log: true}}}}",
        "budget.trials": 2,
    }
    sweep = raysweep.load_sweep("smoke", overrides)
    results = raysweep.run_sweep(sweep, on_progress=print)
    print(
        results.trials[["trial", "status", "config_loss", "config_margin"]].to_string(index=False)
    )


if __name__ == "__main__":
    main()
