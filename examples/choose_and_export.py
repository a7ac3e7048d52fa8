"""Choose a point on a run's front and export it as an ordinary sentence-transformers model.

python choose_and_export.py RUN
"""

import sys

from sentence_transformers import SentenceTransformer

import raysweep

MIN_RETENTION = 0.9


def main(run: str) -> None:
    results = raysweep.load_run(run)
    front = results.front
    similar_enough = front[front.dev_retention >= MIN_RETENTION]
    chosen = similar_enough.sort_values("dev_polarity").iloc[-1]
    print(raysweep.export_point(results, "chosen-model", chosen.point))

    model = SentenceTransformer("chosen-model", device="cpu")  # raysweep is not needed from here on
    queries = model.encode(["the soup was cold", "I loved the soup"])
    print(
        f"{model.similarity_fn_name} similarity of two opinions: {model.similarity(queries, queries)[0, 1]:.3f}"
    )


if __name__ == "__main__":
    main(sys.argv[1])
