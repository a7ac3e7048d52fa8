"""The stages of prepare, built one after the other by a coordinator, which is an actor on a cluster.

Each stage maps chunks of rows through workers and writes what comes back; whatever is large stays off the driver.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raysweep.cluster import Capacity, Request
from raysweep.data import examples, ingest, inverted_file
from raysweep.data.artifacts import Store, open_array
from raysweep.data.dataset import Sentences
from raysweep.data.neighbours import Search, VectorFile
from raysweep.encoders.tokens import Tokens
from raysweep.errors import InputError
from raysweep.prepare import neighbour_shards
from raysweep.prepare.chunks import ChunkedJob, write_columns
from raysweep.prepare.neighbour_shards import Cells, SearchJob, TrainVectors
from raysweep.prepare.plan import EncodedStage, ExamplesStage, NeighboursStage, SentencesStage, Stage
from raysweep.prepare.workers import DESCRIPTION, Columns, EncodeWorker, ExampleWorker, NeighbourWorker

ROWS_PER_CHUNK = 2048

Summary = Mapping[str, Any]
"""What an artifact's manifest says of its content."""


class StageProgress(NamedTuple):
    """How far a stage has come. ``total`` is 0 while it is unknown; ``unit`` says what is counted."""

    done: int
    total: int
    unit: str


NOTHING_DONE = StageProgress(0, 0, "sentences")


class Coordinator:
    """Builds stages one after the other; a second thread answers :meth:`progress`.

    Without a capacity it works in its own process, chunk after chunk, with the same results.
    """

    encode_worker = EncodeWorker  # a subclass may put its own in

    def __init__(self, store: Store, capacity: Capacity | None) -> None:
        self.store = store
        self.capacity = capacity
        self._progress = NOTHING_DONE

    def progress(self) -> StageProgress:
        return self._progress

    def build(self, stage: Stage) -> None:
        """Build the artifact of ``stage``, whole or not at all."""
        self._progress = NOTHING_DONE
        self.store.build(stage.artifact, stage.parameters, lambda folder: self._write(stage, folder))

    def _write(self, stage: Stage, folder: Path) -> Summary:
        match stage:
            case SentencesStage():
                return self._sentences(stage, folder)
            case EncodedStage():
                return self._encoded(stage, folder)
            case NeighboursStage():
                return self._neighbours(stage, folder)
            case ExamplesStage():
                return self._examples(stage, folder)
        raise TypeError(f"no stage of prepare: {stage}")

    def _sentences(self, stage: SentencesStage, folder: Path) -> Summary:
        seed = stage.parameters.get("seed", 0)
        summary = ingest.build(folder, stage.data, seed=seed, progress=self._count("rows"))
        total = sum(summary.num_sentences.values())
        self._progress = StageProgress(total, total, "sentences")
        return {
            "num_sentences": summary.num_sentences,
            "label_names": summary.label_names,
            "warnings": summary.warnings,
        }

    def _encoded(self, stage: EncodedStage, folder: Path) -> Summary:
        request = self._request(encoders=True)
        num_sentences = len(Sentences(stage.sentences.folder))
        arguments = (stage.sentences, stage.encoder, stage.parameters["encoder"], request)
        job = ChunkedJob(self.encode_worker, arguments, num_sentences, ROWS_PER_CHUNK)
        tokens: list[npt.NDArray[np.int32]] = []
        description: dict[str, Any] = {}

        def embeddings() -> Iterator[Columns]:
            for chunk in self._run(job, request):
                tokens.extend(chunk.pop("tokens"))
                description.update(json.loads(chunk.pop(DESCRIPTION)[0]))
                yield chunk

        write_columns(folder, embeddings(), num_sentences, self._count("sentences", num_sentences))
        packed = Tokens.of(tokens)
        np.save(folder / "flat.npy", packed.flat)
        np.save(folder / "offsets.npy", packed.offsets)
        return {"num_tokens": len(packed.flat), **description}

    def _neighbours(self, stage: NeighboursStage, folder: Path) -> Summary:
        job = _search_job(stage)
        source = job.open_vectors()
        num_train = len(source)
        request = self._neighbour_request(job)
        num_shards = neighbour_shards.num_shards(num_train, request)
        if self.capacity is None or num_shards > 1 or job.cells:
            searched = self._search_shards(job, source, request, num_shards, folder)
        else:
            searched = self._search_in_tasks(job, source, request, folder)
        has_neighbour = (open_array(folder, "ids") >= 0).any(axis=(1, 2))
        num_with_neighbours = int(has_neighbour.sum())
        if not num_with_neighbours:
            raise InputError(
                f"examples.min_similarity is {stage.parameters['min_similarity']}, and no sentence has a neighbour that "
                "similar: lower it"
            )
        return {"num_sentences": num_train, "num_with_neighbours": num_with_neighbours, **searched}

    def _search_in_tasks(self, job: SearchJob, source: VectorFile, request: Request, folder: Path) -> Summary:
        """All rows in each process that is there already: they are few, or there is one process."""
        num_train = len(source)
        num_queries = job.num_queries(num_train, source.width)
        chunks = ChunkedJob(NeighbourWorker, (job, request), num_train, min(ROWS_PER_CHUNK, num_queries))
        write_columns(folder, self._run(chunks, request), num_train, self._count("sentences", num_train))
        return {}

    def _search_shards(
        self, job: SearchJob, source: VectorFile, request: Request, num_shards: int, folder: Path
    ) -> Summary:
        """The rows spread over shards, or all in this process. Returns what is known of an inverted file."""
        num_train = len(source)
        progress = self._count("sentences", num_train)
        of_each = None if self.capacity is None else request
        num_queries = job.num_queries(num_train // num_shards, source.width)
        with neighbour_shards.opened(job, num_train, num_shards, of_each) as shards:
            blocks = neighbour_shards.blocks_of(source, num_queries, num_train)
            results = (found.columns for found in shards.search(blocks))
            write_columns(folder, results, num_train, progress)
            return neighbour_shards.describe_cells(job, shards, source)

    def _neighbour_request(self, job: SearchJob) -> Request:
        if self.capacity is None:
            return self._request(encoders=False)
        return neighbour_shards.request_for(self.capacity, in_cells=job.cells is not None)

    def _examples(self, stage: ExamplesStage, folder: Path) -> Summary:
        parameters = dict(stage.parameters)
        counts = _count_candidates(stage)
        quotas = examples.allocate(counts, parameters["target"], parameters["seed"])
        num_examples = int(quotas.sum())
        if not num_examples:
            raise InputError(
                f"no examples of kind {stage.example_kind}: no sentence has the neighbours they need (of its own class "
                "and, but for positive pairs, of another) within examples.k and examples.min_similarity"
            )
        arguments = (stage.sentences, stage.neighbours, parameters)
        job = ChunkedJob(ExampleWorker, arguments, len(counts), examples.CHUNK, {"quotas": quotas})
        results = self._run(job, self._request(encoders=False))
        write_columns(folder, results, num_examples, self._count("examples", num_examples))
        return {"num_examples": num_examples, "num_candidates": int(counts.sum())}

    def _request(self, *, encoders: bool) -> Request:
        if self.capacity is None:
            return Request(os.cpu_count() or 1, 0, 1)
        return self.capacity.encoders() if encoders else self.capacity.processors()

    def _run(self, job: ChunkedJob, request: Request) -> Iterator[Columns]:
        return job.run_here() if self.capacity is None else job.run_on_cluster(request)

    def _count(self, unit: str, total: int = 0) -> Callable[[int], None]:
        """A function that takes how many are done, for :meth:`progress` to answer."""

        def progress(done: int) -> None:
            self._progress = StageProgress(done, total, unit)

        progress(0)
        return progress


def _count_candidates(stage: ExamplesStage) -> npt.NDArray[np.int64]:
    """How many examples of the stage's kind each training sentence could give, block by block of its neighbours."""
    kind = stage.parameters["example_kind"]
    neighbour_ids = open_array(stage.neighbours.folder, "ids")
    starts = range(0, len(neighbour_ids), examples.CHUNK)
    blocks = (np.asarray(neighbour_ids[start : start + examples.CHUNK]) for start in starts)
    return np.concatenate([examples.num_candidates(kind, block) for block in blocks])


def _search_job(stage: NeighboursStage) -> SearchJob:
    vectors = TrainVectors(stage.sentences, stage.encoded)
    parameters = stage.parameters
    search = Search(parameters["k"], parameters["mode"], parameters["min_similarity"])
    if parameters.get("index", "exact") == "exact":
        return SearchJob(vectors, search)
    num_probes = inverted_file.num_probes(len(vectors()))
    return SearchJob(vectors, search, Cells(parameters["seed"], num_probes))
