"""Labeled sentences as retrieval data: queries with sampled documents of their own and of other classes."""

from collections.abc import Sequence

import numpy as np

from raysweep.data.relations import Relations, RelationsBuilder
from raysweep.errors import InputError

MAX_QUERIES = 1000
MAX_DOCUMENTS = 20
"""Maximum number of positives, and of negatives, of a query."""


def retrieval_from_labels(name: str, texts: Sequence[str], labels: Sequence[str], *, seed: int = 0) -> Relations:
    """Return retrieval data whose positives have the query's label, and whose negatives have other labels.

    Queries are a sample of distinct sentences, and the documents of each query a sample of the others; all samples are
    uniform and without replacement. Sentences with several labels are left out and counted.

    Raises:
        InputError: If no sentence has others with the same label and with other labels.
    """
    labels_of: dict[str, set[str]] = {}
    for text, label in zip(texts, labels, strict=True):
        labels_of.setdefault(text, set()).add(label)
    label_of = {text: next(iter(found)) for text, found in labels_of.items() if len(found) == 1}
    sentences = np.array(list(label_of), object)
    classes = np.array(list(label_of.values()), object)
    sizes = {label: int((classes == label).sum()) for label in set(classes)}
    if len(sizes) < 2 or max(sizes.values()) < 2:
        shown = ", ".join(f"{label!r} ({size:,})" for label, size in sorted(sizes.items()))
        raise InputError(
            f"{name}: the labels of sentences with one label are {shown or 'none'}; allowed: two labels or more, one of "
            "them with two sentences"
        )
    rng = np.random.default_rng(seed)
    builder = RelationsBuilder(name, "retrieval")
    for position in rng.permutation(len(sentences))[:MAX_QUERIES].tolist():
        query = sentences[position]
        is_own = classes == classes[position]
        others = np.flatnonzero(~is_own)
        is_own[position] = False
        group = builder.group(position, query)
        for rows, is_positive in ((np.flatnonzero(is_own), True), (others, False)):
            taken = rng.choice(rows, min(MAX_DOCUMENTS, len(rows)), replace=False)
            builder.add(group, query, sentences[taken].tolist(), is_positive=is_positive)
    num_left_out = sum(text not in label_of for text in texts)
    return builder.build(num_left_out)
