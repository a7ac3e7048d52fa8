"""The stages of prepare, built one after the other by a coordinator, which is an actor on a cluster.

Each stage maps chunks of rows through workers, which store their results as shards of the artifact. Shards stored by an
earlier attempt are reused.
"""

import errno
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raysweep.cluster.resources import Capacity, Request, encoder_bytes, shard_bytes
from raysweep.data import examples, inverted_file
from raysweep.data.artifacts import Artifact, Store
from raysweep.data.dataset import Sentences
from raysweep.data.neighbors import Search
from raysweep.data.random_neighbors import sample_anchors
from raysweep.data.shards import Report, ShardSet
from raysweep.encoders.locate import locate_same
from raysweep.encoders.size import EncoderSize
from raysweep.errors import InputError
from raysweep.prepare import neighbor_shards
from raysweep.prepare.chunks import ChunkedJob, open_ray_data
from raysweep.prepare.neighbor_shards import Cells, SearchJob, TrainVectors
from raysweep.prepare.plan import (
    EncodedStage,
    ExamplesStage,
    NeighborsStage,
    RandomNeighborsStage,
    SentencesStage,
    Stage,
)
from raysweep.prepare.sentences import SentencesBuilder
from raysweep.prepare.workers import (
    CandidateCounter,
    Columns,
    EncodeWorker,
    ExampleWorker,
    NeighborWorker,
    RandomNeighborWorker,
    StoringWorker,
)
from raysweep.storage.bucket import StorageError
from raysweep.storage.folder import open_folder

SENTENCES_PER_SHARD = 2048  # enough for batches of similar length; with 256 encoding takes 1.4 times as long

# Chosen so that a shard takes a quarter of the default ``resources.stall_seconds`` on a slow CPU: MiniLM, with 11 million
# weights in its layers, took 0.6 ms per token on one thread of an old server.
WORK_PER_SHARD = 1.4e12  # tokens times weights in layers
FEWEST_PER_SHARD = 64
_BYTES_PER_TOKEN = 4  # of English
_MOST_TOKENS = 512  # per sentence, unless configured

FEW_ROWS = 4096  # faster to search and pair in this process than to distribute

Summary = Mapping[str, Any]
"""The description of an artifact's content in its manifest."""


class StageProgress(NamedTuple):
    """The progress of a stage, counted in ``unit``.

    ``total`` is 0 while unknown. ``found`` items existed when the stage started and count as done. ``waits_for``
    describes what the stage is waiting for, if anything. ``shards`` counts stored shards, which shows life when a step
    has nothing to count.
    """

    done: int
    total: int
    unit: str
    found: int = 0
    waits_for: str = ""
    shards: int = 0


NOTHING_DONE = StageProgress(0, 0, "sentences")


class Coordinator:
    """Builder of stages, one after the other, while a second thread answers :meth:`progress`.

    Without a capacity it works in its own process, chunk by chunk, with the same results.
    """

    encode_worker = EncodeWorker  # subclasses may override it

    def __init__(self, store: Store, capacity: Capacity | None) -> None:
        self.store = store
        self.capacity = capacity
        self._progress = NOTHING_DONE

    def progress(self) -> StageProgress:
        return self._progress

    def warm_up(self) -> None:
        """Start Ray Data's actors, in a third thread, so that the first distributed stage need not wait."""
        open_ray_data()

    def build(self, stage: Stage) -> None:
        """Build the artifact of ``stage``, or wait for another process to build it.

        Nothing is kept of an artifact that cannot be built.
        """
        self._progress = NOTHING_DONE
        with self.store.turn(stage.artifact, self._wait):
            self._progress = NOTHING_DONE
            if stage.artifact.exists:
                return
            try:
                self._write(stage)
            except Exception as error:
                self._give_up(stage, error)

    def _give_up(self, stage: Stage, error: Exception) -> None:
        """Raise the error of a failed stage.

        Stored shards are kept for the next attempt, unless the artifact cannot be built at all.
        """
        if stage.artifact.exists:  # built by another process after this one lost its turn
            return
        refusal = input_error(error)
        if refusal is None:
            raise error
        is_of_a_node = refusal is not error and stage.kind != "sentences"
        if not isinstance(refusal, OSError) and not is_of_a_node:
            self.store.remove(stage.artifact)
        raise refusal from None

    def _wait(self, reason: str) -> None:
        self._progress = self._progress._replace(waits_for=reason)

    def _write(self, stage: Stage) -> None:
        match stage:
            case SentencesStage():
                summary, reports = self._sentences(stage)
                self.store.finish(stage.artifact, stage.parameters, summary, reports)
            case EncodedStage():
                reports = self._encoded(stage)
                summary = {key: reports[0][key] for key in ("parameter_names", "width")}
                summary["num_tokens"] = sum(report["num_tokens"] for report in reports)
                self.store.finish(stage.artifact, stage.parameters, summary, reports)
            case NeighborsStage():
                summary, reports = self._neighbors(stage)
                self.store.finish(stage.artifact, stage.parameters, summary, reports)
            case RandomNeighborsStage():
                summary, reports = self._random_neighbors(stage)
                self.store.finish(stage.artifact, stage.parameters, summary, reports)
            case ExamplesStage():
                summary, reports = self._examples(stage)
                self.store.finish(stage.artifact, stage.parameters, summary, reports)
            case _:
                raise TypeError(f"no stage of prepare: {stage}")

    def _sentences(self, stage: SentencesStage) -> tuple[Summary, list[Report]]:
        summary, reports = SentencesBuilder(stage, self.store, self).build()
        described = {
            "num_rows": sum(report["num_rows"] for report in reports),
            "num_sentences": summary.num_sentences,
            "label_names": summary.label_names,
            "warnings": summary.warnings,
        }
        total = sum(summary.num_sentences.values())
        self._progress = StageProgress(total, total, "sentences")
        return described, reports

    def store_shards(self, artifact: Artifact, job: ChunkedJob, *, is_small: bool) -> list[Report]:
        """Return the reports of the sentence shards; see :class:`raysweep.prepare.sentences.Steps`."""
        nothing = StageProgress(0, 0, "rows")
        return self._stored(artifact, job, self._request(), nothing, is_here=is_small)

    def run(self, job: ChunkedJob, *, is_small: bool) -> Iterator[Columns]:
        """Yield the workers' results while the sentences are built."""
        return self._run(job, self._request(), is_here=is_small)

    def tell(self, num_rows: int) -> None:
        self._progress = StageProgress(num_rows, 0, "rows")

    def _encoded(self, stage: EncodedStage) -> list[Report]:
        num_sentences = stage.sentences.summary["num_rows"]
        size = _encoder_size(stage)
        has_gpus = self.capacity is not None and self.capacity.gpus > 0
        num_per_shard = SENTENCES_PER_SHARD
        if size is not None and not has_gpus:
            num_per_shard = sentences_per_shard(size, _tokens_per_sentence(stage, num_sentences))
        request = self._request_of_encoders(-(-num_sentences // num_per_shard))
        if size is not None:
            request = self._with_memory(request, encoder_bytes(size.weights_bytes, width=size.width))
        arguments = (stage.sentences, stage.encoder, stage.parameters["encoder"], request)
        job = ChunkedJob(self.encode_worker, arguments, num_sentences, num_per_shard)
        return self._stored(stage.artifact, job, request, StageProgress(0, num_sentences, "sentences"))

    def _neighbors(self, stage: NeighborsStage) -> tuple[Summary, list[Report]]:
        job = _search_job(stage, ShardSet(self.store.working(stage.artifact, "centroids"), 1))
        num_shards, request = self._shards_that_fit(job, stage.encoded.summary["width"])
        nothing = StageProgress(0, job.num_rows, "sentences")
        described: Summary = {}
        if self.capacity is None or num_shards > 1 or job.cells:
            described, reports = self._search_shards(job, stage.artifact, request, num_shards, nothing)
        else:  # few rows or a single process: each existing process holds all rows
            chunks = ChunkedJob(NeighborWorker, (job, request), job.num_rows, job.num_queries)
            reports = self._stored(stage.artifact, chunks, request, nothing, is_here=job.num_rows <= FEW_ROWS)
        num_with_neighbors = sum(report["num_with_neighbors"] for report in reports)
        if not num_with_neighbors:
            raise InputError(
                f"examples.min_similarity is {stage.parameters['min_similarity']}, and no sentence has a neighbor that "
                "similar: lower it"
            )
        counts = {"num_sentences": job.num_rows, "num_with_neighbors": num_with_neighbors}
        return {**counts, **described}, reports

    def _random_neighbors(self, stage: RandomNeighborsStage) -> tuple[Summary, list[Report]]:
        num_train = stage.sentences.summary["num_sentences"]["train"]
        job = ChunkedJob(RandomNeighborWorker, (stage.sentences, stage.parameters), num_train, examples.CHUNK)
        nothing = StageProgress(0, num_train, "sentences")
        reports = self._stored(stage.artifact, job, self._request(), nothing, is_here=num_train <= FEW_ROWS)
        num_with_neighbors = sum(report["num_with_neighbors"] for report in reports)
        return {"num_sentences": num_train, "num_with_neighbors": num_with_neighbors}, reports

    def _search_shards(
        self, job: SearchJob, artifact: Artifact, request: Request, num_shards: int, nothing: StageProgress
    ) -> tuple[Summary, list[Report]]:
        """Search with the rows spread over shards, or all in this process.

        Returns the description of an inverted file, if there is one, and the reports.
        """
        of_each = None if self.capacity is None else request
        count = -(-job.num_rows // job.num_queries)
        into = ShardSet(artifact, count)
        reports = _found(into, job)
        missing = [number for number in range(count) if number not in reports]
        with neighbor_shards.opened(job, num_shards, of_each) as shards:
            stored = shards.store(missing, into)
            counted = self._counted(stored, reports, nothing)
            reports |= zip(missing, counted, strict=True)
            described = neighbor_shards.describe_cells(job, shards)
        return described, [reports[number] for number in range(count)]

    def _shards_that_fit(self, job: SearchJob, width: int) -> tuple[int, Request]:
        """Return the number of shards and the request of each.

        All shards must live at once, since each block of queries needs all of them.
        """
        request = self._neighbor_request(job)
        most = neighbor_shards.num_shards(job.num_rows, request)
        for count in range(most, 1, -1):
            asking = self._with_memory(request, shard_bytes(-(-job.num_rows // count), width=width))
            if asking.count >= count:
                return count, asking
        return 1, self._with_memory(request, shard_bytes(job.num_rows, width=width))

    def _neighbor_request(self, job: SearchJob) -> Request:
        if self.capacity is None:
            return self._request()
        return neighbor_shards.request_for(self.capacity, in_cells=job.cells is not None)

    def _examples(self, stage: ExamplesStage) -> tuple[Summary, list[Report]]:
        parameters = dict(stage.parameters)
        counts = self._count_candidates(stage)
        if per_class := parameters.get("anchors_per_class"):
            is_anchor = sample_anchors(_train_labels(stage.sentences), per_class, parameters["seed"])
            counts[~is_anchor] = 0
        quotas = examples.allocate(counts, parameters["target"], parameters["seed"])
        num_examples = int(quotas.sum())
        if not num_examples:
            raise InputError(
                f"no examples of kind {stage.example_kind}: no sentence has the neighbors they need (of its own class "
                "and, but for positive pairs, of another) within examples.k and examples.min_similarity"
            )
        arguments = (stage.sentences, stage.neighbors, parameters)
        job = ChunkedJob(ExampleWorker, arguments, len(counts), examples.CHUNK, {"quotas": quotas})
        nothing = StageProgress(0, num_examples, "examples")
        reports = self._stored(stage.artifact, job, self._request(), nothing, is_here=len(counts) <= FEW_ROWS)
        return {"num_examples": num_examples, "num_candidates": int(counts.sum())}, reports

    def _count_candidates(self, stage: ExamplesStage) -> npt.NDArray[np.int64]:
        """Return how many examples of the stage's kind each training sentence could give."""
        num_anchors = stage.neighbors.summary["num_sentences"]
        arguments = (stage.neighbors, stage.parameters["example_kind"])
        job = ChunkedJob(CandidateCounter, arguments, num_anchors, examples.CHUNK)
        results = self._run(job, self._request(), is_here=num_anchors <= FEW_ROWS)
        counts = [columns["counts"] for columns in results]
        return np.concatenate(counts)

    def _stored(
        self, artifact: Artifact, job: ChunkedJob, request: Request, nothing: StageProgress, *, is_here: bool = False
    ) -> list[Report]:
        """Return the reports of all shards of an artifact, one per chunk.

        The job's workers build the missing shards.
        """
        into = ShardSet(artifact, job.count)
        reports = _found(into, job)
        missing = [number for number in range(job.count) if number not in reports]
        arguments = (into, job.worker, job.arguments)
        storing = replace(job, worker=StoringWorker, arguments=arguments, only=missing)
        results = self._run(storing, request, is_here=is_here)
        made = (json.loads(columns["report"][0]) for columns in results)
        reports |= zip(missing, self._counted(made, reports, nothing), strict=True)
        return [reports[number] for number in range(job.count)]

    def _counted(self, made: Iterable[Report], found: Mapping[int, Report], nothing: StageProgress) -> Iterator[Report]:
        """Yield the reports as they arrive and count them, and the ``found`` ones, as progress."""
        num_found = sum(report["num_rows"] for report in found.values())
        self._progress = nothing._replace(done=num_found, found=num_found)
        for report in made:
            yield report
            before = self._progress
            self._progress = before._replace(done=before.done + report["num_rows"], shards=before.shards + 1)

    def _request(self) -> Request:
        return Request(os.cpu_count() or 1, 0, 1) if self.capacity is None else self.capacity.processors()

    def _request_of_encoders(self, num_chunks: int) -> Request:
        return self._request() if self.capacity is None else self.capacity.encoders(num_chunks)

    def _with_memory(self, request: Request, needed_bytes: int) -> Request:
        """Return the request with a worker's memory on CPUs; on GPUs none was measured."""
        if self.capacity is None or request.gpus:
            return request
        return self.capacity.with_memory(request, needed_bytes)

    def _run(self, job: ChunkedJob, request: Request, *, is_here: bool = False) -> Iterator[Columns]:
        return job.run_here() if is_here or self.capacity is None else job.run_on_cluster(request)


def _found(into: ShardSet, job: ChunkedJob | SearchJob) -> dict[int, Report]:
    """Return the existing shards' reports by number, without those whose rows differ from the job's."""
    found = into.found()
    return {number: report for number, report in found.items() if report.get("rows") == job.rows(number)}


def _encoder_size(stage: EncodedStage) -> EncoderSize | None:
    """Return the size of the stage's encoder; None if the encoder is not on this node."""
    try:
        source = locate_same(stage.encoder, stage.parameters["encoder"])
    except InputError:
        return None
    return EncoderSize.of(source.folder)


def _tokens_per_sentence(stage: EncodedStage, num_sentences: int) -> float:
    """Return the estimated mean number of tokens per sentence, from the stored bytes."""
    num_bytes = sum(open_folder(stage.sentences.location).sizes(stage.sentences.name).values())
    return min(num_bytes / num_sentences / _BYTES_PER_TOKEN, stage.encoder.max_tokens or _MOST_TOKENS)


def sentences_per_shard(size: EncoderSize, num_tokens: float) -> int:
    """Return how many sentences of ``num_tokens`` tokens make a shard on CPUs.

    A shard is the smallest progress that prepare shows.
    """
    work = num_tokens * size.weights_in_layers
    fitting = int(WORK_PER_SHARD / work) if work else SENTENCES_PER_SHARD
    return min(SENTENCES_PER_SHARD, max(FEWEST_PER_SHARD, fitting))


def _train_labels(sentences: Artifact) -> npt.NDArray[np.integer]:
    opened = Sentences(sentences.folder)
    return np.asarray(opened.labels[opened.ids("train")])


def _search_job(stage: NeighborsStage, centroids: ShardSet) -> SearchJob:
    vectors = TrainVectors(stage.sentences, stage.encoded)
    num_train = stage.sentences.summary["num_sentences"]["train"]
    parameters = stage.parameters
    search = Search(parameters["k"], parameters["mode"], parameters["min_similarity"])
    if parameters.get("index", "exact") == "exact":
        return SearchJob(vectors, num_train, search)
    num_probes = inverted_file.num_probes(num_train)
    return SearchJob(vectors, num_train, search, Cells(parameters["seed"], num_probes, centroids))


def input_error(error: BaseException) -> InputError | None:
    """Return the InputError that a worker raised, if any.

    Errors that pass through Ray Data keep only the text of their cause.
    """
    # Ray's task error is itself an InputError, with a traceback as its text.
    cause = getattr(error, "cause", error)
    if isinstance(cause, InputError):
        return cause
    if isinstance(cause, OSError):  # a full disk
        reason = cause.strerror or " ".join(str(cause).split())
        return StorageError(cause.errno or errno.EIO, reason, cause.filename or "prepare")
    if messages := re.findall(rf"{InputError.__module__}\.{InputError.__name__}: (.+)", str(error)):
        return InputError(messages[-1])
    if messages := re.findall(rf"{StorageError.__module__}\.{StorageError.__name__}: (.+)", str(error)):
        where, _, reason = messages[-1].partition(": ")
        return StorageError(errno.EIO, reason, where)
    return None
