"""Run trials that a test kills: import once, then run one trial in a fork for each line of JSON on standard input.

Only imports may run before the fork, because threads do not survive it.
"""

import json
import os
import sys
from pathlib import Path

import sentence_transformers.sentence_transformer.losses  # noqa: F401
import transformers.models.bert.modeling_bert  # noqa: F401

from raysweep.config.sweep import EvaluationConfig
from raysweep.config.trial import trial_config
from raysweep.data.prepared import Prepared
from raysweep.training import (
    checkpoint,  # noqa: F401
    optimization,  # noqa: F401
    trainer,  # noqa: F401
    trial,
    workbench,
)


def run(prepared: str, config: dict, checkpoints: str, rungs: str) -> None:
    """Run the trial and write a file with the exact loss and scores of each rung."""
    bench = workbench.Workbench(Prepared.open(prepared), EvaluationConfig(k=8, num_pool=200))
    found = trial.rungs(
        trial_config(config),
        bench,
        seed=7,
        num_rungs=3,
        checkpoints=Path(checkpoints),
        checkpoint_seconds=0.0,
    )
    for rung in found:
        points = {
            f"{kind} {value}": [
                scores["polarity"].tobytes().hex(),
                scores["similarity"].tobytes().hex(),
            ]
            for (kind, value), scores in rung.points.items()
        }
        place = Path(rungs) / f"{rung.step}.json"
        text = json.dumps({"seen": rung.examples_seen, "loss": rung.loss.hex(), "points": points})
        place.with_suffix(".tmp").write_text(text)
        place.with_suffix(".tmp").replace(place)


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                run(**json.loads(line))
                status = 0
            finally:
                os._exit(status)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
