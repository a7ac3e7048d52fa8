"""Trials that do nothing, for bare Ray Tune. Apart from the benchmark, so that their processes import nothing more."""

from typing import Any

from ray import tune


def nothing(config: dict[str, Any]) -> None:
    """Reports once."""
    tune.report({"value": 0})


class Nothing(tune.Trainable):
    """Reports once, and has nothing to reset."""

    def setup(self, config: dict[str, Any]) -> None:
        pass

    def step(self) -> dict[str, Any]:
        return {"value": 0, "done": True}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        return True
