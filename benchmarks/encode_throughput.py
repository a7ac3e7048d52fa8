"""Sentences embedded per second: raysweep's ``encoder.embed`` against ``SentenceTransformer.encode(batch_size=64)``.

Both embed the same SST-2 sentences in the same slices with the same weights, taking turns in separate processes; a rate
is the median over slices. One table includes tokenization on both sides. The other excludes it, as in a sweep, where
tokens come from artifacts: the time within the stock encoder's ``preprocess`` is subtracted. Loading and a first slice
of 64 sentences are not timed. Cosines are with the stock encoder's fp32 embeddings of the same sentences.

Peak memory is the resident peak (VmHWM) of the peer's process, from its start to its last slice.
"""

import argparse
import itertools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import measure, peers, sst2
from benchmarks.peers import Peer, Turns

NUM_SLICES = 8
HEADER = (
    "peer",
    "sentences/s",
    "to stock",
    "without tokenizing",
    "to stock",
    "peak MiB",
    "mean cosine",
    "least cosine",
)
Floats = npt.NDArray[np.float32]


def main() -> None:
    arguments = _arguments()
    with measure.workplace():
        machine = measure.machine()
        peers.preload(machine["device"])
        figures = _run(arguments, machine)
    measure.finish("encode_throughput", figures, machine, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = measure.parser("benchmarks.encode_throughput", __doc__)
    parser.add_argument("--sentences", type=int, help="how many to embed; 8192, with --quick 1024")
    arguments = parser.parse_args()
    arguments.sentences = arguments.sentences or (1024 if arguments.quick else 8192)
    if arguments.sentences < 64 * NUM_SLICES:
        parser.error(f"--sentences must be at least {64 * NUM_SLICES}")
    return arguments


def _run(arguments: argparse.Namespace, machine: dict[str, Any]) -> dict[str, Any]:
    data = sst2.locate(arguments.data)
    texts = [text for text, _ in sst2.rows(data.train, "train", arguments.sentences)]
    device = "cpu" if machine["device"] == "cpu" else "cuda"
    stock = Peer("stock fp32", encode_stock, texts, device)
    compared = [stock] + [
        Peer(f"ours {name}", encode_ours, texts, device, name) for name in ("fp32", "bf16")
    ]
    report = peers.side_by_side(compared, patient=arguments.patient)
    auto = f"ours {machine['auto']}"
    rows, figures = [], {}
    for peer in compared:
        embeddings, untokenized = peer.result
        cosines = (embeddings * stock.result[0]).sum(axis=1)
        rate = peer.median(untokenized)
        name = f"{peer.name} (auto)" if peer.name == auto else peer.name
        of_stock = rate / stock.median(stock.result[1])
        speeds = [
            f"{peer.rate:,.0f}",
            f"{peer.rate / stock.rate:.2f}",
            f"{rate:,.0f}",
            f"{of_stock:.2f}",
        ]
        peak = f"{(peer.peak_device_bytes or peer.peak_bytes) / measure.MIB:,.0f}"
        rows.append([name, *speeds, peak, f"{cosines.mean():.6f}", f"{cosines.min():.6f}"])
        figures[peer.name] = {
            **peer.figures(),
            "examples_per_second_without_tokenizing": rate,
            "mean_cosine": float(cosines.mean()),
            "least_cosine": float(cosines.min()),
        }
    print(
        f"{data.name}, {len(texts):,} sentences in {NUM_SLICES} slices; auto is {machine['auto']} here\n"
    )
    print(measure.table(HEADER, rows))
    print(report)
    with_tokens = figures[auto]["examples_per_second"] / stock.rate
    without = figures[auto]["examples_per_second_without_tokenizing"]
    without /= figures[stock.name]["examples_per_second_without_tokenizing"]
    print(
        f"\nratio: {with_tokens:.2f} ({auto} over stock fp32, both tokenizing); without tokenizing {without:.2f}"
    )
    return {
        "ratio": with_tokens,
        "ratio_of": [
            f"{auto} (auto), tokenizing included",
            "SentenceTransformer.encode fp32, batch 64",
        ],
        "ratio_without_tokenizing": without,
        "data": data.name,
        "sentences": len(texts),
        "auto": machine["auto"],
        "rounds": stock.counted,
        "rows": figures,
    }


def _slices(texts: Sequence[str]) -> list[list[str]]:
    bounds = np.linspace(0, len(texts), NUM_SLICES + 1).astype(int)
    return [list(texts[start:stop]) for start, stop in itertools.pairwise(bounds)]


def encode_stock(turns: Turns, texts: Sequence[str], device: str) -> tuple[Floats, list[float]]:
    """Return embeddings, and the rate of each slice without the time of tokenization."""
    from raysweep.config.sweep import EncoderConfig
    from raysweep.encoders import encoder

    model = encoder.load(EncoderConfig(name="demo"), device=device)
    preprocess = model.preprocess
    spent = 0.0

    def timed(*arguments: Any, **options: Any) -> Any:
        nonlocal spent
        began = time.perf_counter()
        features = preprocess(*arguments, **options)
        spent += time.perf_counter() - began
        return features

    model.preprocess = timed  # type: ignore[method-assign]
    model.encode(list(texts[:64]), batch_size=64)
    parts, rates = [], []
    turns.begin()
    for part in _slices(texts):
        spent, began = 0.0, time.perf_counter()
        parts.append(np.asarray(model.encode(part, batch_size=64)))
        rates.append(len(part) / (time.perf_counter() - began - spent))
        turns.rest(len(part))
    turns.end()
    return np.concatenate(parts), rates


def encode_ours(
    turns: Turns, texts: Sequence[str], device: str, arithmetic: str
) -> tuple[Floats, list[float]]:
    """Return embeddings, and the rate of each slice over precomputed tokens."""
    from raysweep.config.sweep import EncoderConfig
    from raysweep.encoders import encoder
    from raysweep.encoders import tokens as encoder_tokens

    model = encoder.load(EncoderConfig(name="demo"), device=device)

    def embed(tokens: encoder_tokens.Tokens) -> Floats:
        return encoder.embed(model, tokens, np.arange(len(tokens)), arithmetic=arithmetic)

    embed(encoder_tokens.tokenize(model, texts[:64]))
    parts, rates = [], []
    turns.begin()
    for part in _slices(texts):
        tokens = encoder_tokens.tokenize(model, part)
        began = time.perf_counter()
        parts.append(embed(tokens))
        rates.append(len(part) / (time.perf_counter() - began))
        turns.rest(len(part))
    turns.end()
    return np.concatenate(parts), rates


if __name__ == "__main__":
    main()
