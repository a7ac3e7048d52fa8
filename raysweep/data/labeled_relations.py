"""Conversion of labeled sentences to retrieval data."""

from collections.abc import Sequence

import numpy as np

from raysweep.config.watch import MAX_QUERIES
from raysweep.data.relations import Relations, RelationsBuilder
from raysweep.data.sources import shown
from raysweep.errors import InputError

MAX_DOCUMENTS = 20
"""Maximum number of positives per query, and of negatives per query."""


def retrieval_from_labels(
    name: str,
    texts: Sequence[str],
    labels: Sequence[str],
    *,
    seed: int = 0,
    max_queries: int = MAX_QUERIES,
) -> Relations:
    """Return retrieval data in which positives have the query's label and negatives have other labels.

    Queries are sampled from the distinct sentences, and each query's documents from the remaining sentences, both
    without replacement. Sentences with several labels are left out; ``num_left_out`` counts their rows.

    Raises:
        InputError: If there are fewer than two labels, or no label has two sentences.
    """
    labels_by_text: dict[str, set[str]] = {}
    for text, label in zip(texts, labels, strict=True):
        labels_by_text.setdefault(text, set()).add(label)
    label_by_text = {}
    for text, text_labels in labels_by_text.items():
        if len(text_labels) == 1:
            (label_by_text[text],) = text_labels
    sentences = list(label_by_text)
    names, classes, sizes = np.unique(
        list(label_by_text.values()), return_inverse=True, return_counts=True
    )
    if len(names) < 2 or sizes.max() < 2:
        counts = zip(names.tolist(), sizes.tolist(), strict=True)
        counted = [f"{label!r} ({size:,})" for label, size in counts]
        raise InputError(
            f"{name}: the labels of sentences with exactly one label are {shown(counted) or 'none'}; required: at least "
            "two labels, at least one of them with two sentences"
        )
    rng = np.random.default_rng(seed)
    builder = RelationsBuilder(name, "retrieval")
    for position in rng.permutation(len(sentences))[:max_queries].tolist():
        query = sentences[position]
        is_positive = classes == classes[position]
        is_negative = ~is_positive
        is_positive[position] = False  # the query itself
        group = builder.group(position, query)
        for is_candidate in (is_positive, is_negative):
            candidates = np.flatnonzero(is_candidate)
            num_documents = min(MAX_DOCUMENTS, len(candidates))
            rows = rng.choice(candidates, num_documents, replace=False)
            documents = [sentences[row] for row in rows.tolist()]
            builder.add(group, query, documents, is_positive=is_candidate is is_positive)
    num_left_out = sum(text not in label_by_text for text in texts)
    return builder.build(num_left_out)
