"""The sentences of several data sets as one dataset."""

from pathlib import Path

import numpy as np

from raysweep.config.sweep import EvaluationConfig
from raysweep.data.prepared import Prepared
from raysweep.evaluation.relation_set import scored_set
from raysweep.evaluation.sequence_set import SequenceSet
from support.sequences import NUM_TEST


def test_data_sets_follow_each_other(sequence_prepared: Prepared) -> None:
    sentences = sequence_prepared.sequence
    parts = {name: part.sentences for name, part in sequence_prepared.parts.items()}
    assert sentences.names == ("sentiment", "length")
    assert sentences.label_names == [
        f"{name}/{label}" for name, part in parts.items() for label in part.label_names
    ]
    for number, (name, part) in enumerate(parts.items()):
        ids = sentences.starts[number] + np.arange(len(part))
        assert sentences.texts(ids) == part.texts(np.arange(len(part)))
        assert set(sentences.data_sets_of(ids)) == {number}
        np.testing.assert_array_equal(sentences.local_labels(ids), part.labels)
        named = {sentences.label_names[label] for label in sentences.labels[ids]}
        assert named == {f"{name}/{part.label_names[label]}" for label in part.labels}
        embeddings = sequence_prepared.reference_embeddings.document[ids]
        np.testing.assert_array_equal(
            embeddings, sequence_prepared.parts[name].reference_embeddings.document[:]
        )
    mixed = np.array([len(sentences) - 1, 0, sentences.starts[1]])
    assert sentences.texts(mixed) == [sentences.texts([int(number)])[0] for number in mixed]


def test_means_over_queries_are_means_over_data_sets(sequence_prepared: Prepared) -> None:
    evaluation = scored_set(sequence_prepared, "test", EvaluationConfig(k=4))
    assert isinstance(evaluation, SequenceSet)
    num_queries = min(NUM_TEST.values())
    assert [len(task.queries) for task in evaluation.tasks.values()] == [num_queries, num_queries]
    assert (
        sequence_prepared.sentences.num_queries("test") == 2 * num_queries == evaluation.num_scored
    )
    means = [task.reference_scores.mean("polarity") for task in evaluation.tasks.values()]
    assert np.isclose(evaluation.reference_scores.mean("polarity"), np.mean(means))


def test_prepared_sequences_are_stored_by_name(sequence_prepared: Prepared, tmp_path: Path) -> None:
    sequence_prepared.save(tmp_path / "prepared.json")
    read = Prepared.open(tmp_path / "prepared.json")
    assert read == sequence_prepared
    assert list(read.tasks) == ["sentiment", "length"]
