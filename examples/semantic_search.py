"""Print the rows of a CSV file that are nearest to a query under a sentence-transformers model.

python semantic_search.py MODEL FILE TEXT_COLUMN QUERY
"""

import sys

import pandas as pd
from sentence_transformers import SentenceTransformer

NUM_RESULTS = 5


def search(
    model: SentenceTransformer, texts: list[str], query: str
) -> tuple[list[int], list[float]]:
    """Return the rows of the most similar texts, best first, and their similarities."""
    documents = model.encode_document(texts)
    similarities = model.similarity(model.encode_query([query]), documents)[0]
    best = similarities.topk(NUM_RESULTS)
    return best.indices.tolist(), best.values.tolist()


def main(name: str, file: str, text_column: str, query: str) -> None:
    rows = pd.read_csv(file)
    if text_column not in rows:
        sys.exit(
            f"{file}: column {text_column!r} is missing; columns: {', '.join(map(repr, rows))}"
        )
    rows = rows.dropna(subset=[text_column])
    nearest, similarities = search(SentenceTransformer(name), rows[text_column].tolist(), query)
    results = rows.iloc[nearest].assign(similarity=similarities)
    print(results.to_string(index=False, float_format="%.2f"))


if __name__ == "__main__":
    main(*sys.argv[1:])
