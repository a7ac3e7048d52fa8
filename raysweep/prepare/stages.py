"""The coordinator, which builds one artifact at a time and runs as an actor on a cluster.

In most stages, workers process chunks of rows and store the results as shards of the artifact. Shards stored by an
earlier attempt are reused.
"""

import contextlib
import errno
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from raysweep.cluster.resources import Capacity, Request, encoder_bytes, shard_bytes
from raysweep.data import all_pairs, dev_examples, examples, inverted_file
from raysweep.data.all_pairs import AllPairs
from raysweep.data.artifacts import Artifact, Store
from raysweep.data.dataset import Sentences
from raysweep.data.expert_scores import ExpertScores
from raysweep.data.neighbors import NeighborSearch
from raysweep.data.random_neighbors import sample_anchors
from raysweep.data.relation_examples import RelationExamples
from raysweep.data.shards import Report, Shard, ShardSet, open_array
from raysweep.encoders.locate import locate_same
from raysweep.encoders.size import EncoderSize
from raysweep.errors import InputError
from raysweep.prepare import neighbor_shards, relations
from raysweep.prepare.chunks import ChunkedJob, start_ray_data
from raysweep.prepare.neighbor_shards import Cells, SearchJob, TrainVectors
from raysweep.prepare.plan import (
    AllPairsStage,
    ArtifactStage,
    EncodedStage,
    ExamplesStage,
    JoinedStage,
    NeighborsStage,
    RandomNeighborsStage,
    RelationExamplesStage,
    RelationsStage,
    ScoresStage,
    SentencesStage,
    TeacherStage,
    TokensStage,
)
from raysweep.prepare.sentences import SentencesBuilder, write_joined
from raysweep.prepare.workers import (
    CandidateCounter,
    Columns,
    EncodeWorker,
    ExampleWorker,
    NeighborWorker,
    RandomNeighborWorker,
    ScoreWorker,
    StoringWorker,
    TeacherWorker,
    TokenWorker,
    Worker,
)
from raysweep.storage.bucket import StorageError
from raysweep.storage.folder import open_folder
from raysweep.storage.location import is_uri

SENTENCES_PER_TOKEN_SHARD = 16384
PAIRS_PER_SHARD = 2**15
# large enough to batch sentences of similar length; with 256, encoding takes 1.4 times as long
SENTENCES_PER_SHARD = 2048

# On a slow CPU, this takes a quarter of the default ``resources.stall_seconds``. MiniLM, with 11 million weights in its
# layers, took 0.6 ms per token on one thread of an old server.
WORK_PER_SHARD = 1.4e12  # tokens times weights in the layers
MIN_PER_SHARD = 64
_BYTES_PER_TOKEN = 4  # in English text
_MAX_TOKENS = 512  # per sentence, if not configured

# up to this many rows, searching and pairing are faster in this process than on workers
FEW_ROWS = 4096

Summary = Mapping[str, Any]
"""The description of an artifact's content in its manifest."""


class StageProgress(NamedTuple):
    """The progress of a stage, counted in ``unit``.

    ``total`` is 0 if unknown. ``done`` includes the ``reused`` items, which existed when the stage started.
    ``waits_for`` describes what the stage is waiting for, if anything. ``shards`` is the number of shards stored so far.
    """

    done: int
    total: int
    unit: str
    reused: int = 0
    waits_for: str = ""
    shards: int = 0


NOTHING_DONE = StageProgress(0, 0, "sentences")


class Coordinator:
    """Builds one stage at a time. Another thread can call :meth:`progress` during a build.

    If ``capacity`` is None, all chunks are processed in this process, with the same results.
    """

    encode_worker = EncodeWorker  # subclasses may override this

    def __init__(self, store: Store, capacity: Capacity | None) -> None:
        self.store = store
        self.capacity = capacity
        self._progress = NOTHING_DONE

    def progress(self) -> StageProgress:
        return self._progress

    def warm_up(self) -> None:
        """Start Ray Data's actors before the first distributed stage needs them."""
        start_ray_data()

    def build(self, stage: ArtifactStage) -> None:
        """Build the artifact of ``stage``, or wait for another process to build it.

        If the build fails, its shards are kept for the next attempt, unless the input is invalid.
        """
        self._progress = NOTHING_DONE
        with self.store.turn(stage.artifact, self._report_waiting):
            self._progress = NOTHING_DONE
            if stage.artifact.exists:
                return
            try:
                self._write(stage)
            except Exception as error:
                # Another process may have built the artifact after this one lost the lock.
                if stage.artifact.exists:
                    return
                cause = input_error(error)
                if cause is None:
                    raise
                is_of_node = cause is not error and stage.kind != "sentences"
                if not isinstance(cause, OSError) and not is_of_node:
                    self.store.remove(stage.artifact)
                raise cause from None

    def _report_waiting(self, reason: str) -> None:
        self._progress = self._progress._replace(waits_for=reason)

    def _write(self, stage: ArtifactStage) -> None:
        """Build the artifact of ``stage`` and write its manifest."""
        builders: Mapping[type[ArtifactStage], Callable[[Any], tuple[Summary, list[Report]]]] = {
            SentencesStage: self._build_sentences,
            RelationsStage: self._build_sentences,
            JoinedStage: self._join_sentences,
            EncodedStage: self._encode,
            TokensStage: self._tokenize,
            TeacherStage: self._teach,
            NeighborsStage: self._find_neighbors,
            RandomNeighborsStage: self._draw_neighbors,
            ExamplesStage: self._draw_examples,
            AllPairsStage: self._draw_all_pairs,
            RelationExamplesStage: self._draw_relation_examples,
            ScoresStage: self._score,
        }
        summary, reports = builders[type(stage)](stage)
        self.store.finish(stage.artifact, stage.parameters, summary, reports)

    def _build_sentences(
        self, stage: SentencesStage | RelationsStage
    ) -> tuple[Summary, list[Report]]:
        if isinstance(stage, RelationsStage):
            summary, reports = relations.write(stage.data, stage.artifact)
        else:
            summary, reports = SentencesBuilder(stage, self.store, self).build()
        manifest = {
            "num_rows": sum(report["num_rows"] for report in reports),
            "num_sentences": summary.num_sentences,
            "label_names": summary.label_names,
            "warnings": summary.warnings,
        }
        total = sum(summary.num_sentences.values())
        self._progress = StageProgress(total, total, "sentences")
        return manifest, reports

    def store_shards(self, artifact: Artifact, job: ChunkedJob, *, is_small: bool) -> list[Report]:
        """Build the missing sentence shards; see :class:`raysweep.prepare.sentences.JobRunner`."""
        at_start = StageProgress(0, 0, "rows")
        return self._store_missing(artifact, job, self._request(), at_start, is_here=is_small)

    def run(self, job: ChunkedJob, *, is_small: bool) -> Iterator[Columns]:
        """Yield the results of the job's workers."""
        return self._run(job, self._request(), is_here=is_small)

    def report_rows(self, num_rows: int) -> None:
        self._progress = StageProgress(num_rows, 0, "rows")

    def _encode(self, stage: EncodedStage) -> tuple[Summary, list[Report]]:
        arguments = (
            stage.sentences,
            stage.encoder,
            stage.parameters["encoder"],
            stage.role,
            stage.side,
        )
        reports = self._embed(stage, self.encode_worker, arguments)
        return _summarize_encoder(reports), reports

    def _teach(self, stage: TeacherStage) -> tuple[Summary, list[Report]]:
        reports = self._embed(stage, TeacherWorker, (stage.sentences, stage.teacher))
        num_dev_seen = stage.teacher.count_seen(Sentences(stage.sentences.folder))
        return {"num_dev_seen": num_dev_seen}, reports

    def _embed(
        self,
        stage: EncodedStage | TeacherStage,
        worker: Callable[..., Worker],
        arguments: tuple[Any, ...],
    ) -> list[Report]:
        """Encode all sentences and return the shards' reports.

        ``arguments`` are the arguments of ``worker`` except the last one, the request.
        """
        num_sentences = stage.sentences.summary["num_rows"]
        size = _encoder_size(stage)
        has_gpus = self.capacity is not None and self.capacity.gpus > 0
        num_per_shard = SENTENCES_PER_SHARD
        if size is not None and not has_gpus:
            file_sizes = open_folder(stage.sentences.location).sizes(stage.sentences.name)
            bytes_per_sentence: float = sum(file_sizes.values()) / num_sentences
            max_tokens = stage.encoder.max_tokens or _MAX_TOKENS
            tokens_per_sentence = min(bytes_per_sentence / _BYTES_PER_TOKEN, max_tokens)
            num_per_shard = sentences_per_shard(size, tokens_per_sentence)
        num_shards = -(-num_sentences // num_per_shard)
        request = self._request() if self.capacity is None else self.capacity.encoders(num_shards)
        if size is not None:
            num_bytes = encoder_bytes(size.weights_bytes, width=size.width)
            request = self._with_memory(request, num_bytes)
        job = ChunkedJob(worker, (*arguments, request), num_sentences, num_per_shard)
        at_start = StageProgress(0, num_sentences, "sentences")
        return self._store_missing(stage.artifact, job, request, at_start)

    def _tokenize(self, stage: TokensStage) -> tuple[Summary, list[Report]]:
        num_sentences = stage.sentences.summary["num_rows"]
        request = self._request()
        size = _encoder_size(stage)
        if size is not None:
            num_bytes = encoder_bytes(size.weights_bytes, width=size.width)
            request = self._with_memory(request, num_bytes)
        arguments = (
            stage.sentences,
            stage.encoder,
            stage.parameters["encoder"],
            "tuned",
            "document",
            request,
        )
        job = ChunkedJob(TokenWorker, arguments, num_sentences, SENTENCES_PER_TOKEN_SHARD)
        at_start = StageProgress(0, num_sentences, "sentences")
        reports = self._store_missing(stage.artifact, job, request, at_start)
        return _summarize_encoder(reports), reports

    def _find_neighbors(self, stage: NeighborsStage) -> tuple[Summary, list[Report]]:
        vectors = TrainVectors(stage.sentences, stage.encoded)
        num_train = stage.sentences.summary["num_sentences"]["train"]
        parameters = stage.parameters
        search = NeighborSearch(parameters["k"], parameters["mode"], parameters["min_similarity"])
        cells = None
        if "index" in parameters:  # an inverted file
            centroids = self.store.working(stage.artifact, "centroids")
            num_probes = inverted_file.num_probes(num_train)
            cells = Cells(parameters["seed"], num_probes, ShardSet(centroids, 1))
        job = SearchJob(vectors, num_train, search, cells)
        width = stage.encoded.summary["width"]
        num_shards, request = self._shards_that_fit(job, width)
        at_start = StageProgress(0, job.num_rows, "sentences")
        index: Summary = {}
        if self.capacity is None or num_shards > 1 or job.cells:
            index, reports = self._search_shards(job, stage.artifact, width, num_shards, at_start)
        else:  # one shard: each worker holds all rows and processes some of the queries
            chunks = ChunkedJob(NeighborWorker, (job, request), job.num_rows, job.num_queries)
            is_here = job.num_rows <= FEW_ROWS
            reports = self._store_missing(
                stage.artifact, chunks, request, at_start, is_here=is_here
            )
        summary = _summarize_neighbors(job.num_rows, reports)
        if not summary["num_with_neighbors"]:
            raise InputError(
                f"examples.min_similarity is {parameters['min_similarity']}, but no sentence has a neighbor with a "
                "cosine that high; lower examples.min_similarity"
            )
        return {**summary, **index}, reports

    def _draw_neighbors(self, stage: RandomNeighborsStage) -> tuple[Summary, list[Report]]:
        num_train = stage.sentences.summary["num_sentences"]["train"]
        job = ChunkedJob(
            RandomNeighborWorker, (stage.sentences, stage.parameters), num_train, examples.CHUNK
        )
        at_start = StageProgress(0, num_train, "sentences")
        is_here = num_train <= FEW_ROWS
        reports = self._store_missing(
            stage.artifact, job, self._request(), at_start, is_here=is_here
        )
        return _summarize_neighbors(num_train, reports), reports

    def _search_shards(
        self,
        job: SearchJob,
        artifact: Artifact,
        width: int,
        max_shards: int,
        at_start: StageProgress,
    ) -> tuple[Summary, list[Report]]:
        """Search the rows in at most ``max_shards`` shards or, without a cluster, in this process.

        Return the description of the inverted file, which is empty for an exact search, and the shards' reports.
        """
        opened: contextlib.AbstractContextManager[neighbor_shards.Shards]
        if self.capacity is None:
            opened = contextlib.nullcontext(neighbor_shards.ShardHere(job))
        else:
            fit = partial(self._shards_that_fit, job, width)
            opened = neighbor_shards.open_shards(job, fit, max_shards, self._report_waiting)
        num_blocks = -(-job.num_rows // job.num_queries)
        target = ShardSet(artifact, num_blocks)
        with opened as shards:
            reports = self._complete(
                target, job, at_start, lambda missing: shards.store(missing, target)
            )
            cells = neighbor_shards.describe_cells(job, shards)
        return cells, reports

    def _shards_that_fit(
        self, job: SearchJob, width: int, max_shards: int | None = None
    ) -> tuple[int, Request]:
        """Return the number of shards, at most ``max_shards``, and the request for each."""
        request = self._request()
        if self.capacity is not None:
            request = neighbor_shards.request_for(self.capacity, in_cells=job.cells is not None)
        num_shards = neighbor_shards.num_shards(job.num_rows, request)
        if max_shards is not None:
            num_shards = min(num_shards, max_shards)
        while True:
            num_rows = -(-job.num_rows // num_shards)
            num_bytes = shard_bytes(num_rows, width=width)
            shard_request = self._with_memory(request, num_bytes)
            if num_shards == 1 or shard_request.count >= num_shards:
                return num_shards, shard_request
            num_shards -= 1

    def _count_candidates(self, stage: ExamplesStage) -> npt.NDArray[np.int64]:
        """Return the number of examples that each sentence could yield as an anchor."""
        num_anchors = stage.neighbors.summary["num_sentences"]
        arguments = (stage.neighbors, stage.parameters, stage.random_neighbors)
        job = ChunkedJob(CandidateCounter, arguments, num_anchors, examples.CHUNK)
        chunks = self._run(job, self._request(), is_here=num_anchors <= FEW_ROWS)
        counts = np.concatenate([chunk["counts"] for chunk in chunks])
        if per_class := stage.parameters.get("anchors_per_class"):
            sentences = Sentences(stage.sentences.folder)
            labels = sentences.labels[sentences.ids("train")]
            is_anchor = sample_anchors(np.asarray(labels), per_class, stage.parameters["seed"])
            counts[~is_anchor] = 0
        return counts

    def _draw_examples(self, stage: ExamplesStage) -> tuple[Summary, list[Report]]:
        parameters = stage.parameters
        counts = self._count_candidates(stage)
        quotas = examples.allocate(counts, parameters["target"], parameters["seed"])
        num_examples = int(quotas.sum())
        if not num_examples:
            classes = (
                "its own class"
                if stage.example_kind == "positive_pair"
                else "both its own class and another"
            )
            raise InputError(
                f"examples: no {stage.example_kind} can be formed, because no sentence has neighbors of {classes}; raise "
                "examples.k, lower examples.min_similarity, or relax the limits on negatives"
            )
        arguments = (stage.sentences, stage.neighbors, parameters, stage.random_neighbors)
        job = ChunkedJob(ExampleWorker, arguments, len(counts), examples.CHUNK, {"quotas": quotas})
        at_start = StageProgress(0, num_examples, "examples")
        is_here = len(counts) <= FEW_ROWS
        reports = self._store_missing(
            stage.artifact, job, self._request(), at_start, is_here=is_here
        )
        return {"num_examples": num_examples, "num_candidates": int(counts.sum())}, reports

    def _join_sentences(self, stage: JoinedStage) -> tuple[Summary, list[Report]]:
        given = Sentences(stage.sentences.folder)
        pairs = AllPairs.of(
            given, stage.parameters.get("anchors_per_class"), stage.parameters.get("seed", 0)
        ).pairs
        reports = write_joined(given, pairs, stage.artifact)
        num_rows = sum(report["num_rows"] for report in reports)
        self._progress = StageProgress(num_rows, num_rows, "sentences")
        return {**stage.sentences.summary, "num_rows": num_rows}, reports

    def _draw_all_pairs(self, stage: AllPairsStage) -> tuple[Summary, list[Report]]:
        parameters = stage.parameters
        sentences = Sentences(stage.sentences.folder)
        pairs = AllPairs.of(sentences, parameters.get("anchors_per_class"), parameters["seed"])
        is_joined = stage.sentences != stage.given
        first_joined = len(Sentences(stage.given.folder)) if is_joined else None
        kind: Any = stage.example_kind
        cosines = parameters.get("cosines", (1.0, 0.0))
        labels = np.asarray(sentences.labels)
        ids, targets = all_pairs.draw(
            kind,
            pairs,
            labels,
            parameters["target"],
            parameters["seed"],
            first_joined=first_joined,
            cosines=cosines,
        )
        columns = {"ids": ids} if targets is None else {"ids": ids, "targets": targets}
        reports = [ShardSet(stage.artifact, 1).write(0, Shard(columns, {}))]
        self._progress = StageProgress(len(ids), len(ids), "examples")
        return {"num_examples": len(ids)}, reports

    def _draw_relation_examples(self, stage: RelationExamplesStage) -> tuple[Summary, list[Report]]:
        parameters = stage.parameters
        pairs = Sentences(stage.sentences.folder).pairs("train")
        candidates = RelationExamples(pairs, parameters["combinations"])
        kind: Any = stage.example_kind
        num_candidates = int(candidates.num_candidates(kind).sum())
        if not num_candidates:
            raise InputError(
                f"examples: no {kind} can be formed; required: a query or group in data.train with both positives and "
                "negatives"
            )
        cosines = parameters.get("cosines", (1.0, 0.0))
        ids, targets = candidates.draw(kind, parameters["target"], parameters["seed"], cosines)
        columns = {"ids": ids} if targets is None else {"ids": ids, "targets": targets}
        reports = [ShardSet(stage.artifact, 1).write(0, Shard(columns, {}))]
        self._progress = StageProgress(len(ids), len(ids), "examples")
        return {"num_examples": len(ids), "num_candidates": num_candidates}, reports

    def _score(self, stage: ScoresStage) -> tuple[Summary, list[Report]]:
        if stage.split == "train":
            num_examples = stage.source.summary["num_examples"]
            arguments = (stage.sentences, stage.source, stage.experts)
            job = ChunkedJob(ScoreWorker, arguments, num_examples, PAIRS_PER_SHARD)
            at_start = StageProgress(0, num_examples, "pairs")
            reports = self._store_missing(
                stage.artifact, job, self._request(), at_start, is_here=job.count == 1
            )
        else:
            sentences = Sentences(stage.sentences.folder)
            labels = np.asarray(sentences.labels)
            dev = sentences.ids("dev")
            vectors = open_array(stage.source.folder, "embeddings")[dev]
            neighbors = dev_examples.find_neighbors(vectors, labels[dev])
            rows, _ = dev_examples.draw("scored_pair", neighbors)
            pairs = dev[rows]
            embeddings = [open_array(expert.folder, "embeddings") for expert in stage.experts]
            scores = ExpertScores.of(pairs, labels, embeddings)
            self._progress = StageProgress(len(pairs), len(pairs), "pairs")
            columns = {"ids": pairs, **scores.columns}
            shard = Shard(columns, {"num_active": scores.num_active})
            reports = [ShardSet(stage.artifact, 1).write(0, shard)]
        num_pairs = sum(report["num_rows"] for report in reports)
        num_active = np.sum([report["num_active"] for report in reports], axis=0)
        return {
            "num_pairs": num_pairs,
            "active_sets": (num_active / max(num_pairs, 1)).tolist(),
        }, reports

    def _store_missing(
        self,
        artifact: Artifact,
        job: ChunkedJob,
        request: Request,
        at_start: StageProgress,
        *,
        is_here: bool = False,
    ) -> list[Report]:
        """Build the missing shards of an artifact, one per chunk, and return the reports of all shards."""
        shards = ShardSet(artifact, job.count)

        def store(numbers: list[int]) -> Iterator[Report]:
            arguments = (shards, job.worker, job.arguments)
            storing_job = replace(job, worker=StoringWorker, arguments=arguments, only=numbers)
            for columns in self._run(storing_job, request, is_here=is_here):
                yield json.loads(columns["report"][0])

        return self._complete(shards, job, at_start, store)

    def _complete(
        self,
        shards: ShardSet,
        job: ChunkedJob | SearchJob,
        at_start: StageProgress,
        store: Callable[[list[int]], Iterator[Report]],
    ) -> list[Report]:
        """Store the missing shards, and return the reports of all shards.

        Stored shards whose rows differ from the job's also count as missing. ``store`` takes the numbers of the missing
        shards and yields their reports.
        """
        reports: dict[int, Report] = {}
        for number, report in shards.read_reports().items():
            if report.get("rows") == job.rows(number):
                reports[number] = report
        num_reused = sum(report["num_rows"] for report in reports.values())
        progress = at_start._replace(done=num_reused, reused=num_reused)
        self._progress = progress
        missing = [number for number in range(shards.count) if number not in reports]
        for number, report in zip(missing, store(missing), strict=True):
            reports[number] = report
            num_done = progress.done + report["num_rows"]
            progress = progress._replace(done=num_done, shards=progress.shards + 1)
            self._progress = progress
        return [reports[number] for number in range(shards.count)]

    def _request(self) -> Request:
        return (
            Request(os.cpu_count() or 1, 0, 1)
            if self.capacity is None
            else self.capacity.processors()
        )

    def _with_memory(self, request: Request, needed_bytes: int) -> Request:
        """Return the request with the needed memory.

        GPU requests are returned unchanged, because the memory use of GPU workers has not been measured.
        """
        if self.capacity is None or request.gpus:
            return request
        return self.capacity.with_memory(request, needed_bytes)

    def _run(
        self, job: ChunkedJob, request: Request, *, is_here: bool = False
    ) -> Iterator[Columns]:
        return job.run_here() if is_here or self.capacity is None else job.run_on_cluster(request)


def _summarize_neighbors(num_sentences: int, reports: Iterable[Report]) -> Summary:
    num_with_neighbors = sum(report["num_with_neighbors"] for report in reports)
    return {"num_sentences": num_sentences, "num_with_neighbors": num_with_neighbors}


def _summarize_encoder(reports: list[Report]) -> Summary:
    summary = {
        "parameter_names": reports[0]["parameter_names"],
        "width": reports[0]["width"],
        "num_tokens": sum(report["num_tokens"] for report in reports),
    }
    num_truncated = sum(report.get("num_truncated", 0) for report in reports)
    return {**summary, "num_truncated": num_truncated} if num_truncated else summary


def _encoder_size(stage: EncodedStage | TokensStage | TeacherStage) -> EncoderSize | None:
    """Return the size of the stage's encoder, or None if the encoder is not on this node."""
    # The driver also runs on this node, so only an encoder in a bucket may be missing.
    artifacts = stage.artifact.location if is_uri(stage.encoder.name) else None
    try:
        source = locate_same(stage.encoder, stage.parameters["encoder"], artifacts)
    except InputError:
        return None
    return EncoderSize.of(source.folder)


def sentences_per_shard(size: EncoderSize, num_tokens: float) -> int:
    """Return the number of sentences per shard on CPUs, given ``num_tokens`` tokens per sentence."""
    work_per_sentence = num_tokens * size.weights_in_layers
    if not work_per_sentence:
        return SENTENCES_PER_SHARD
    num_sentences = int(WORK_PER_SHARD / work_per_sentence)
    return min(SENTENCES_PER_SHARD, max(MIN_PER_SHARD, num_sentences))


def input_error(error: BaseException) -> InputError | None:
    """Return the InputError that a worker raised, if any.

    Errors that pass through Ray Data keep only the text of their cause.
    """
    # Ray's task error is itself an InputError, with a traceback as its text.
    cause = getattr(error, "cause", error)
    if isinstance(cause, InputError):
        return cause
    if isinstance(cause, OSError):  # such as a full disk
        reason = cause.strerror or " ".join(str(cause).split())
        return StorageError(cause.errno or errno.EIO, reason, cause.filename or "prepare")
    if message := _last_message(InputError, str(error)):
        return InputError(message)
    if message := _last_message(StorageError, str(error)):
        place, _, reason = message.partition(": ")
        return StorageError(errno.EIO, reason, place)
    return None


def _last_message(error_type: type[Exception], text: str) -> str | None:
    """Return the message of the last error of this type in a traceback."""
    messages = re.findall(rf"{error_type.__module__}\.{error_type.__name__}: (.+)", text)
    return messages[-1] if messages else None
