"""Build the sentences and relations of a sweep on retrieval data or pairs.

A single process reads all sources, so they must fit in its memory.
"""

import io
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from raysweep.config.sweep import DataConfig
from raysweep.data import relation_sources, relations
from raysweep.data.artifacts import Artifact
from raysweep.data.dataset import HUB_SPLITS, SPLITS, DatasetSummary, Split, pairs_file
from raysweep.data.relation_sources import RelationSettings
from raysweep.data.relations import Relations
from raysweep.data.shards import Report
from raysweep.data.sources import Source, shown
from raysweep.errors import InputError
from raysweep.prepare import sentences
from raysweep.prepare.ingest import fold_text, sources_by_split
from raysweep.storage.folder import open_folder


def write(data: DataConfig, artifact: Artifact) -> tuple[DatasetSummary, list[Report]]:
    """Store the sentences and pairs of all splits, and return the summary and the shards' reports.

    Sentences are distinct within a split. All have label 0, and there are no label names.

    Raises:
        InputError: If a source cannot be read, or if a split has no query or group with both positives and negatives.
    """
    by_split = {
        split: _read(data, split, source) for split, source in sources_by_split(data).items()
    }
    texts: list[str] = []
    split_numbers: list[int] = []
    folder = open_folder(artifact.location).within(artifact.name)
    for split, of_split in by_split.items():
        table = of_split.pairs.table
        table[:, :2] += len(texts)
        file = io.BytesIO()
        np.save(file, table)
        folder.put(pairs_file(split), file.getvalue())
        texts += of_split.sentences
        split_numbers += [SPLITS.index(split)] * len(of_split.sentences)
    folded = [fold_text(text) for text in texts]
    first_ids: dict[str, int] = {}
    groups = [first_ids.setdefault(text, len(first_ids)) for text in folded]
    labels = np.zeros(len(texts), np.int32)
    splits = np.array(split_numbers, np.int8)
    rows = sentences.DatasetRows(labels, splits)
    summary = _summarize(data, by_split)
    reports = sentences.write_rows(artifact, texts, rows, np.array(groups, np.int32), summary)
    return summary, reports


def _read(data: DataConfig, split: Split, source: Source) -> Relations:
    """Read all sources of a split and join their relations."""
    settings = replace(RelationSettings.of(data), joins_labels=True)
    parts: list[Relations] = []
    for name in [source] if isinstance(source, str) else source:
        parts += relation_sources.read(name, settings, split=HUB_SPLITS[split], subset=data.subset)
    joined = relations.join(parts)
    if not joined.pairs.are_measured.any():
        unit = "query" if joined.kind == "retrieval" else "group"
        raise InputError(
            f"{shown(source)}: no {unit} has both positives and negatives; required: at least one {unit} with both"
        )
    return joined


def _summarize(data: DataConfig, by_split: Mapping[Split, Relations]) -> DatasetSummary:
    folded = {
        split: [fold_text(text) for text in of_split.sentences]
        for split, of_split in by_split.items()
    }
    in_train = set(folded["train"])
    warnings = []
    for split, of_split in by_split.items():
        num_unmeasured = int((~of_split.pairs.are_measured).sum())
        if num_unmeasured and split != "train":
            warnings.append(
                f"{split}: {num_unmeasured:,} of {of_split.num_groups:,} queries or groups lack positives or negatives and "
                "are not measured"
            )
        if of_split.num_left_out:
            warnings.append(
                f"{split}: rows that are neither positive nor negative are left out (rows={of_split.num_left_out:,})"
            )
        queries = np.unique(of_split.first).tolist()
        num_repeated = sum(folded[split][query] in in_train for query in queries)
        if num_repeated and split != "train":
            warnings.append(
                f"{split}: {num_repeated:,} of {len(queries):,} queries also occur in train"
            )
    num_sentences = dict.fromkeys(SPLITS, 0) | {
        split: len(texts) for split, texts in folded.items()
    }
    num_duplicates = {split: len(texts) - len(set(texts)) for split, texts in folded.items()}
    also_in_train = {
        split: sum(text in in_train for text in texts) for split, texts in folded.items()
    }
    del also_in_train["train"]
    return DatasetSummary(
        sources=sources_by_split(data),
        label_names=[],
        num_sentences={str(split): count for split, count in num_sentences.items()},
        num_by_label={},
        num_dropped_conflicting=0,
        conflicts=[],
        num_duplicates={str(split): count for split, count in num_duplicates.items()},
        num_also_in_train={str(split): count for split, count in also_in_train.items()},
        warnings=warnings,
        num_inside_train={},
        num_left_out=0,
    )
