"""What Ray Data's workers do: each is made once in an actor and then called with chunks of rows.

A chunk comes as its first row and the row after its last, and goes back as columns. Everything else a worker reads from
artifacts, which it memory-maps.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from raysweep.cluster import Request
from raysweep.config.sweep import EncoderConfig
from raysweep.data import examples
from raysweep.data.artifacts import Artifact, open_array
from raysweep.data.dataset import Sentences
from raysweep.data.neighbour_shard import NeighbourShard
from raysweep.data.neighbours import merge
from raysweep.encoders import encoder
from raysweep.encoders.loaded import LoadedEncoder
from raysweep.prepare.neighbour_shards import SearchJob

Columns = dict[str, npt.NDArray[Any]]
"""Arrays of equally many rows, by name. A chunk has one row: ``start``, ``stop``, and arrays that travel with its rows."""

DESCRIPTION = "description"  # a column whose first row describes the encoder


class Worker(Protocol):
    """What a worker returns for a chunk."""

    def __call__(self, chunk: Columns, /) -> Columns: ...


def rows_of(chunk: Columns) -> tuple[int, int]:
    """The chunk's first row, and the row after its last."""
    return int(chunk["start"][0]), int(chunk["stop"][0])


class EncodeWorker:
    """Tokens and unit embeddings of chunks of sentences under the encoder ``identity``, with a description of it."""

    def __init__(self, sentences: Artifact, config: EncoderConfig, identity: str, request: Request) -> None:
        self.sentences = Sentences(sentences.folder)
        self.config = config
        self.identity = identity
        self.request = request

    @cached_property
    def model(self) -> LoadedEncoder:
        """Loaded by the first call, whose errors arrive in full; of a failing constructor Ray says that an actor died."""
        encoder.use_threads(self.request.threads)
        device = "cuda" if self.request.gpus else "cpu"
        return LoadedEncoder.load(self.config, self.identity, device=device)

    def __call__(self, chunk: Columns) -> Columns:
        ids = np.arange(*rows_of(chunk))
        tokens = self.model.tokenise(self.sentences.texts(ids))
        ragged = np.empty(len(ids), object)
        ragged[:] = np.split(tokens.flat, tokens.offsets[1:-1])
        descriptions = np.full(len(ids), "", object)
        descriptions[0] = json.dumps({"parameter_names": self.model.parameter_names, "width": self.model.width})
        return {"embeddings": self.model.embed(tokens), "tokens": ragged, DESCRIPTION: descriptions}


class NeighbourWorker:
    """Neighbours of chunks of rows among all rows, which it holds: for so few that shards would not pay."""

    def __init__(self, job: SearchJob, request: Request) -> None:
        self.source = job.open_vectors()
        self.job = job
        self.shard = NeighbourShard(self.source, np.arange(len(self.source)), request.threads)

    def __call__(self, chunk: Columns) -> Columns:
        queries = self.source.read(np.arange(*rows_of(chunk)))
        answer = self.shard.search(queries, self.job.search)
        return merge([answer], self.job.search).columns


class ExampleWorker:
    """Examples of chunks of anchors, as many of each as the chunk's ``quotas`` allot."""

    def __init__(self, sentences: Artifact, neighbours: Artifact, parameters: Mapping[str, Any]) -> None:
        self.train = Sentences(sentences.folder).ids("train")
        self.neighbours = open_array(neighbours.folder, "ids")
        self.parameters = parameters

    def __call__(self, chunk: Columns) -> Columns:
        start, stop = rows_of(chunk)
        anchors = examples.Chunk(
            number=start // examples.CHUNK,
            anchors=np.arange(start, stop),
            neighbour_ids=np.asarray(self.neighbours[start:stop]),
            quotas=np.stack(list(chunk["quotas"][0])),
        )
        cosines = tuple(self.parameters.get("cosines", (1.0, 0.0)))
        positions, targets = examples.draw(self.parameters["example_kind"], anchors, self.parameters["seed"], cosines)
        # Neighbours are counted within train, examples within all sentences.
        ids = self.train[positions].astype(np.int32)
        if targets is None:
            return {"ids": ids}
        return {"ids": ids, "targets": targets}
