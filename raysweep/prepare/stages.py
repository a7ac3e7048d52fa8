"""The stages of prepare, run inside one coordinator actor: each maps chunks of sentence ids through Ray Data workers.

Inputs are artifacts that every worker memory-maps, so only chunk numbers go out and only results come back, in order. No
stage has a read or write task that could starve for a CPU; whatever is large stays off the driver.
"""

import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from raysweep.cluster import Capacity, Request
from raysweep.config.sweep import DataConfig, EncoderConfig
from raysweep.data import examples, ingest
from raysweep.data.artifacts import Store, open_array
from raysweep.data.dataset import Sentences
from raysweep.data.neighbours import NeighbourIndex
from raysweep.encoders import encoder
from raysweep.encoders import tokens as encoder_tokens
from raysweep.encoders.tokens import Tokens
from raysweep.errors import InputError
from raysweep.prepare.plan import Stage

ROWS_PER_CHUNK = 2048


Columns = dict[str, npt.NDArray[Any]]


class Coordinator:
    """Builds stages one after the other; a second thread answers :meth:`progress`.

    Without a capacity it works in its own process, chunk after chunk, with the same results.
    """

    def __init__(self, store: Store, capacity: Capacity | None) -> None:
        self.store = store
        self.capacity = capacity
        self._progress = (0, 0, "sentences")

    def progress(self) -> tuple[int, int, str]:
        """Rows done, rows in all (0 while unknown), and what a row is."""
        return self._progress

    def build(self, stage: Stage) -> None:
        """Build the artifact of ``stage``, whole or not at all."""
        self._progress = (0, 0, "sentences")
        write: Callable[[Stage, Path], Mapping[str, Any]] = getattr(self, f"_{stage.kind}")
        self.store.build(stage.path, stage.parameters, lambda folder: write(stage, folder))

    def _sentences(self, stage: Stage, folder: Path) -> Mapping[str, Any]:
        def progress(rows: int) -> None:
            self._progress = (rows, 0, "rows")

        data = DataConfig(**stage.inputs)
        summary = ingest.build(folder, data, seed=stage.parameters.get("seed", 0), progress=progress)
        total = sum(summary.num_sentences.values())
        self._progress = (total, total, "sentences")
        return {
            "num_sentences": summary.num_sentences,
            "label_names": summary.label_names,
            "warnings": summary.warnings,
        }

    def _encoded(self, stage: Stage, folder: Path) -> Mapping[str, Any]:
        request = self._request(encoders=True)
        arguments = (stage.inputs["sentences"], EncoderConfig(**stage.inputs["encoder"]), request, folder)
        num_rows = len(Sentences(stage.inputs["sentences"]))
        tokens: list[npt.NDArray[np.int32]] = []

        def embeddings() -> Iterator[Columns]:
            for chunk in self._map(_Encode, arguments, num_rows, ROWS_PER_CHUNK, request):
                tokens.extend(chunk.pop("tokens"))
                yield chunk

        self._write(folder, embeddings(), num_rows)
        packed = Tokens.of(tokens)
        np.save(folder / "flat.npy", packed.flat)
        np.save(folder / "offsets.npy", packed.offsets)
        return {"num_tokens": len(packed.flat), **json.loads((folder / "encoder.json").read_text(encoding="utf-8"))}

    def _neighbours(self, stage: Stage, folder: Path) -> Mapping[str, Any]:
        request = self._request(encoders=_faiss_has_gpus())
        arguments = (stage.inputs["sentences"], stage.inputs["encoded"], dict(stage.parameters), request)
        num_rows = len(Sentences(stage.inputs["sentences"]).ids("train"))
        self._write(folder, self._map(_Search, arguments, num_rows, ROWS_PER_CHUNK, request), num_rows)
        found = int((open_array(folder, "ids") >= 0).any(axis=(1, 2)).sum())
        if not found:
            raise InputError(
                f"examples.min_similarity is {stage.parameters['min_similarity']}, and no sentence has a neighbour that "
                "similar: lower it"
            )
        return {"num_sentences": num_rows, "num_with_neighbours": found}

    def _examples(self, stage: Stage, folder: Path) -> Mapping[str, Any]:
        parameters, neighbours = stage.parameters, stage.inputs["neighbours"]
        kind = parameters["example_kind"]
        ids = open_array(neighbours, "ids")
        blocks = [ids[start : start + examples.CHUNK] for start in range(0, len(ids), examples.CHUNK)]
        counts = np.concatenate([examples.num_candidates(kind, np.asarray(block)) for block in blocks])
        quotas = examples.allocate(counts, parameters["target"], parameters["seed"])
        total = int(quotas.sum())
        if not total:
            raise InputError(
                f"no examples of kind {kind}: no sentence has the neighbours they need (of its own class and, but for "
                "positive pairs, of another) within examples.k and examples.min_similarity"
            )
        np.save(folder / "quotas.npy", quotas)
        arguments = (stage.inputs["sentences"], neighbours, folder, dict(parameters))
        chunks = self._map(_Draw, arguments, len(ids), examples.CHUNK, self._request(encoders=False))
        self._progress = (0, total, "examples")
        self._write(folder, chunks, total, unit="examples")
        (folder / "quotas.npy").unlink()
        return {"num_examples": total, "num_candidates": int(counts.sum())}

    def _request(self, *, encoders: bool) -> Request:
        if self.capacity is None:
            return Request(os.cpu_count() or 1, 0, 1)
        return self.capacity.encoders() if encoders else self.capacity.processors()

    def _map(
        self, worker: type, arguments: tuple[Any, ...], num_rows: int, rows_per_chunk: int, request: Request
    ) -> Iterator[Columns]:
        """Results of ``worker`` over chunks of 0..num_rows, in order, from a pool of actors that ends with the iteration."""
        self._progress = (0, num_rows, "sentences")
        starts = range(0, num_rows, rows_per_chunk)
        if self.capacity is None:
            here = worker(*arguments)
            for start in starts:
                yield here({"start": np.array([start]), "stop": np.array([min(start + rows_per_chunk, num_rows)])})
            return
        import pyarrow as pa
        import ray
        from ray.data import ActorPoolStrategy, DataContext

        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        # Blocks that are already in the object store: reading them takes no task.
        blocks = [pa.table({"start": [start], "stop": [min(start + rows_per_chunk, num_rows)]}) for start in starts]
        mapped = ray.data.from_arrow(blocks).map_batches(
            worker,
            fn_constructor_args=arguments,
            compute=ActorPoolStrategy(min_size=1, max_size=min(request.count, len(blocks))),
            batch_size=None,
            batch_format="numpy",
            num_cpus=request.cpus,
            num_gpus=request.gpus,
        )
        for batch in mapped.iter_batches(batch_size=None, batch_format="numpy"):
            yield {name: np.asarray(column) for name, column in batch.items()}

    def _write(self, folder: Path, chunks: Iterator[Columns], num_rows: int, unit: str = "sentences") -> None:
        """Each column into one ``.npy`` file of ``num_rows`` rows."""
        files: Columns = {}
        done = 0
        for chunk in chunks:
            rows = len(next(iter(chunk.values())))
            for name, column in chunk.items():
                if name not in files:
                    shape = (num_rows, *column.shape[1:])
                    files[name] = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", column.dtype, shape)
                files[name][done : done + rows] = column
            done += rows
            self._progress = (done, num_rows, unit)
        if done != num_rows:
            raise RuntimeError(f"{done} of {num_rows} rows arrived")
        for file in files.values():
            file.flush()  # type: ignore[attr-defined]


class _Encode:
    """Tokens and unit embeddings of chunks of sentences under one encoder."""

    def __init__(self, sentences: Path, config: EncoderConfig, request: Request, folder: Path) -> None:
        self.sentences = Sentences(sentences)
        self.config = config
        self.request = request
        self.folder = folder

    @cached_property
    def model(self) -> Any:
        """Loaded by the first call, whose errors arrive in full; of a failing constructor Ray says that an actor died."""
        encoder.use_threads(self.request.threads)
        model = encoder.load(self.config, device="cuda" if self.request.gpus else "cpu")
        names = [name for name, _ in model.named_parameters()]
        described = {"parameter_names": names, "width": model.get_embedding_dimension()}
        temporary = self.folder / f"encoder.{uuid.uuid4().hex}.tmp"  # every worker writes the same description
        temporary.write_text(json.dumps(described), encoding="utf-8")
        temporary.replace(self.folder / "encoder.json")
        return model

    def __call__(self, chunk: Columns) -> Columns:
        ids = np.arange(chunk["start"][0], chunk["stop"][0])
        tokens = encoder_tokens.tokenise(self.model, self.sentences.texts(ids), self.config.prompt)
        ragged = np.empty(len(ids), object)
        ragged[:] = np.split(tokens.flat, tokens.offsets[1:-1])
        embeddings = encoder.embed(self.model, tokens, np.arange(len(ids)), arithmetic=self.config.precision)
        return {"embeddings": embeddings, "tokens": ragged}


class _Search:
    """Neighbours of chunks of training sentences among all training sentences."""

    def __init__(self, sentences: Path, encoded: Path, parameters: Mapping[str, Any], request: Request) -> None:
        opened = Sentences(sentences)
        train = opened.ids("train")
        self.parameters = parameters
        self.index = NeighbourIndex(
            open_array(encoded, "embeddings")[train],
            np.asarray(opened.labels[train]),
            np.asarray(opened.duplicate_groups[train]),
            num_threads=request.threads,
        )

    def __call__(self, chunk: Columns) -> Columns:
        rows = np.arange(chunk["start"][0], chunk["stop"][0])
        mode, k = self.parameters["mode"], self.parameters["k"]
        found = self.index.search(rows, k, mode=mode, min_similarity=self.parameters["min_similarity"])
        return {"ids": found.ids, "cosines": found.cosines}


class _Draw:
    """Examples of chunks of anchors, as quotas allot them."""

    def __init__(self, sentences: Path, neighbours: Path, folder: Path, parameters: Mapping[str, Any]) -> None:
        self.train = Sentences(sentences).ids("train")
        self.neighbours = open_array(neighbours, "ids")
        self.quotas = open_array(folder, "quotas")
        self.parameters = parameters

    def __call__(self, chunk: Columns) -> Columns:
        start, stop = int(chunk["start"][0]), int(chunk["stop"][0])
        anchors = examples.Chunk(
            number=start // examples.CHUNK,
            anchors=np.arange(start, stop),
            neighbour_ids=np.asarray(self.neighbours[start:stop]),
            quotas=np.asarray(self.quotas[start:stop]),
        )
        cosines = tuple(self.parameters.get("cosines", (1.0, 0.0)))
        positions, targets = examples.draw(self.parameters["example_kind"], anchors, self.parameters["seed"], cosines)
        ids = self.train[positions].astype(
            np.int32
        )  # neighbours are counted within train, examples within all sentences
        return {"ids": ids} if targets is None else {"ids": ids, "targets": targets}


def _faiss_has_gpus() -> bool:
    import faiss

    return bool(faiss.get_num_gpus())
