"""Training triplets per second: raysweep's engine against the stock SentenceTransformerTrainer, on the same triplets.

Both take the same triplets of SST-2 in the same order and the same batches of 64, with the same cosine TripletLoss
(margin 0.1), AdamW, learning rate 3e-5, linear schedule with 10% warm-up and the encoder's own dropout; once with all
weights training, and once with the embeddings and blocks 0 to 2 frozen (and their dropout off, in both). Peers train in
separate processes, taking turns of a few steps; loading, building data and a warm-up of some batches are not timed. A
rate is the median over turns. Then the same code scores each result on the test split.

A frozen trial of raysweep is measured twice. ``no cache`` is a short trial on its own, which runs the frozen blocks for
each batch. With ``cache filled``, its process has already run them for these sentences, as in a sweep whose trials have
read the data; this is the cache's maximum benefit. ``tower query`` trains only the encoder of anchors, on the same
triplets.

Peak memory is the resident peak (VmHWM) of the peer's process, from its start to the end of training.
"""

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import chip_share, measure, peers, sst2
from benchmarks.peers import Peer

FROZEN = "emb+B0-2"
RESAMPLES = 2000
GOALS = ("polarity", "similarity")
HEADER = (
    "peer", "triplets/s", "to stock fp32", "peak MiB", "P", "S", "P less stock's [95%]", "S less stock's [95%]"
)  # fmt: skip


def main() -> None:
    arguments = _arguments()
    with measure.workplace() as temporary:
        machine = measure.machine()
        if arguments.trials_per_gpu and machine["device"] == "cpu":
            print("error: --trials-per-gpu needs a GPU", file=sys.stderr)
            sys.exit(2)
        peers.preload(machine["device"])
        figures = _run(arguments, temporary, machine)
    measure.finish("trial_throughput", figures, machine, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = measure.parser("benchmarks.trial_throughput", __doc__)
    measure.artifacts_option(parser)
    parser.add_argument(
        "--examples",
        type=int,
        help="triplets to train on, a multiple of 64; 1280, with --quick 128",
    )
    parser.add_argument(
        "--encoder",
        choices=["demo", *chip_share.SHAPES],
        default="demo",
        help="all but demo have random weights",
    )
    parser.add_argument(
        "--adapter",
        choices=["none", "lora"],
        default="none",
        help="lora: train an adapter of rank 8 on all linear layers",
    )
    parser.add_argument(
        "--auto",
        action="store_true",
        help="only the stock trainer in fp32 and raysweep's trial in the automatic precision, nothing frozen: for encoders "
        "of which more do not fit into memory",
    )
    parser.add_argument(
        "--trials-per-gpu",
        type=lambda text: [int(part) for part in text.split(",")],
        help="such as 1,2,4: only run these numbers of bf16 trials at once on one GPU, and print their memory and the "
        "share of the GPU's bf16 peak",
    )
    arguments = parser.parse_args()
    arguments.examples = arguments.examples or (128 if arguments.quick else 1280)
    if arguments.examples % 64 or arguments.examples < 64:
        parser.error("--examples must be a multiple of 64")
    if arguments.examples < 64 * len(arguments.trials_per_gpu or ()):
        parser.error("--examples must be at least 64 for each number of --trials-per-gpu")
    return arguments


def _run(
    arguments: argparse.Namespace, temporary: Path, machine: Mapping[str, Any]
) -> dict[str, Any]:
    data = sst2.locate(arguments.data)
    if arguments.quick:
        data = sst2.part(data, temporary, 3000, 200)
    model = "demo"
    if arguments.encoder != "demo":
        model = peers.apart(
            chip_share.random_encoder, arguments.encoder, temporary / arguments.encoder
        )
    prepared = peers.apart(
        sst2.prepare, data, arguments.artifacts or temporary / "artifacts", model
    )

    from benchmarks.training_peers import Task, token_counts

    def task(freezing: str, precision: str) -> Task:
        batches = arguments.examples // 64
        settings = {
            "device": "cuda" if machine["device"] != "cpu" else "cpu",
            "warm_up": _warm_up(arguments.quick, machine["device"]),
            "adapter": arguments.adapter,
            "is_scored": arguments.encoder == "demo",
        }
        # Short turns on a CPU, so that what disturbs one disturbs little; on a GPU changing over would cost too much.
        per_turn = -(-batches // 4) if machine["device"] != "cpu" else 1
        return Task.of(
            prepared,
            arguments.examples,
            freezing=freezing,
            precision=precision,
            per_turn=per_turn,
            **settings,
        )

    if arguments.trials_per_gpu:
        return {
            "trials_per_gpu": chip_share.report(
                task("none", "bf16"), arguments.trials_per_gpu, machine["device"]
            )
        }
    automatic = machine["auto"]
    precisions = ["fp32", "bf16"] if automatic == "bf16" or not arguments.quick else ["fp32"]
    triplets = task("none", "fp32").triplets
    tokens = token_counts(prepared, triplets)
    print(f"{data.name}, {len(triplets):,} triplets in batches of 64; auto is {automatic} here")
    if len(precisions) == 1:
        print("bf16 is not faster on this processor, so --quick skips it")
    print(
        f"tokens: {tokens['distinct']:,} of the batches' distinct sentences, {tokens['real']:,} of all columns, "
        f"{tokens['padded']:,} with the stock trainer's padding"
    )
    figures: dict[str, Any] = {
        "data": data.name,
        "examples": len(triplets),
        "encoder": arguments.encoder,
        "adapter": arguments.adapter,
    }
    figures |= {"auto": automatic, "tokens": tokens, "frozen": FROZEN, "rounds": {}, "rows": {}}
    for freezing in (
        ("none",) if arguments.auto or arguments.adapter == "lora" else ("none", FROZEN)
    ):
        tasks = {precision: task(freezing, precision) for precision in precisions}
        names = {"stock fp32", f"ours {automatic}"} if arguments.auto else None
        compared, report = _compare(tasks, names, arguments.patient)
        print(f"\nfreezing {freezing}\n{measure.table(HEADER, _rows(compared))}")
        print(report, flush=True)
        figures["rounds"][freezing] = compared[0].counted
        figures["rows"][freezing] = {peer.name: _figures(peer, compared[0]) for peer in compared}
    _add_ratios(figures, automatic)
    print(f"\nratio: {figures['ratio']:.2f} ({' over '.join(figures['ratio_of'])})")
    if figures["ratio_query"]:
        print(f"tower query over tower both: {figures['ratio_query']:.2f}")
    if FROZEN in figures["rows"]:
        print(
            f"frozen: {figures['ratio_frozen']:.2f}, with its cache filled {figures['ratio_frozen_cached']:.2f}"
        )
    return figures


def _warm_up(is_quick: bool, device: str) -> int:
    """Return the untimed examples; a GPU's allocator has to see batches of many shapes."""
    if device != "cpu":
        return 1280
    return 64 if is_quick else 192


def _compare(
    tasks: Mapping[str, Any], names: Collection[str] | None, patient: bool
) -> tuple[list[Peer], str]:
    """Train the peers of one freezing level side by side, the stock fp32 trainer first, and return notes.

    ``names`` are those of the peers to train, or None for all.
    """
    from benchmarks import training_peers

    work: dict[str, tuple[Any, ...]] = {
        f"stock {precision}": (training_peers.stock, task) for precision, task in tasks.items()
    }
    for precision, task in tasks.items():
        name = f"ours {precision}"
        if task.freezing == "none":
            work[name] = training_peers.ours, task
            work[f"{name}, tower query"] = training_peers.ours, replace(task, tower="query")
        else:
            work[f"{name}, no cache"] = training_peers.ours, task
            work[f"{name}, cache filled"] = training_peers.ours, task, True
    made = [Peer(name, *parts) for name, parts in work.items() if names is None or name in names]
    return made, peers.side_by_side(made, patient=patient)


def _rows(compared: Sequence[Peer]) -> list[list[str]]:
    base = compared[0]
    rows = []
    for peer in compared:
        row = [peer.name, f"{peer.rate:.1f}", f"{peer.rate / base.rate:.2f}"]
        row += [f"{(peer.peak_device_bytes or peer.peak_bytes) / measure.MIB:,.0f}"]
        if peer.result is not None:
            row += [f"{100 * peer.result.mean(name):.2f}" for name in GOALS]
            for key in GOALS:
                difference, low, high = _difference(peer, base, key)
                row.append("" if peer is base else f"{difference:+.2f} [{low:+.2f}, {high:+.2f}]")
        rows.append(row + [""] * (len(HEADER) - len(row)))
    return rows


def _difference(peer: Peer, base: Peer, key: str) -> tuple[float, float, float]:
    """The mean paired difference x100 over queries, and its bootstrap 95% interval; training's own noise is not in it."""
    paired = 100 * (peer.result[key] - base.result[key])
    drawn = np.random.default_rng(0).integers(len(paired), size=(RESAMPLES, len(paired)))
    low, high = np.quantile(paired[drawn].mean(axis=1), [0.025, 0.975])
    return float(paired.mean()), float(low), float(high)


def _figures(peer: Peer, base: Peer) -> dict[str, Any]:
    values = peer.figures()
    if peer.result is not None:
        for key in GOALS:
            values[key] = 100 * peer.result.mean(key)
            values[f"{key}_less_stock"] = dict(
                zip(("mean", "low", "high"), _difference(peer, base, key), strict=True)
            )
    return values


def _add_ratios(figures: dict[str, Any], automatic: str) -> None:
    def rate(freezing: str, name: str) -> float | None:
        row: dict[str, float] | None = figures["rows"].get(freezing, {}).get(name)
        return row["examples_per_second"] if row else None

    def over(freezing: str, ours: str, stock: str) -> float | None:
        above, below = rate(freezing, ours), rate(freezing, stock)
        return above / below if above and below else None

    auto = f"ours {automatic}"
    figures["ratio"] = over("none", auto, "stock fp32")
    figures["ratio_of"] = [f"{auto} (auto), nothing frozen", "stock trainer fp32"]
    figures["ratio_query"] = over("none", f"{auto}, tower query", auto)
    figures["ratio_frozen"] = over(FROZEN, f"{auto}, no cache", "stock fp32")
    figures["ratio_frozen_cached"] = over(FROZEN, f"{auto}, cache filled", "stock fp32")
    for precision in ("fp32", "bf16"):
        figures[f"ratio_{precision}_over_stock_{precision}"] = over(
            "none", f"ours {precision}", f"stock {precision}"
        )
    figures["ratio_over_stock_bf16"] = over("none", auto, "stock bf16")
    figures["ratio_bf16"] = over("none", "ours bf16", "stock fp32")
    figures["ratio_frozen_over_stock_bf16"] = over(FROZEN, f"{auto}, no cache", "stock bf16")
    figures["ratio_frozen_cached_over_stock_bf16"] = over(
        FROZEN, f"{auto}, cache filled", "stock bf16"
    )


if __name__ == "__main__":
    main()
