"""The untuned encoders' values on watched data: measured once, stored, and compared with the data of a resumed run."""

from pathlib import Path

import numpy as np
import pytest

from raysweep.data.prepared import Prepared
from raysweep.data.relations import RelationsBuilder
from raysweep.errors import InputError
from raysweep.evaluation.watched import WatchedRelations
from raysweep.ray_tune import untuned
from raysweep.ray_tune.untuned import Untuned
from raysweep.storage.folder import LocalFolder
from support.displays import ListDisplay


def made(*negatives: str) -> WatchedRelations:
    builder = RelationsBuilder("made", "retrieval")
    for query in ("a good film", "a bad film"):
        group = builder.group(query, query)
        builder.add(group, query, [f"{query} indeed"], is_positive=True)
        builder.add(group, query, negatives, is_positive=False)
    return WatchedRelations([builder.build()], has_target=False, seed=0)


def test_values_are_measured_once(
    tmp_path: Path, tiny_prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, display = LocalFolder(tmp_path), ListDisplay()
    first = Untuned(run, made("a dog", "a film"), tiny_prepared, display)
    first.measure(["both"])
    monkeypatch.setattr(
        untuned, "measure_untuned", lambda *arguments: pytest.fail("measured again")
    )
    again = Untuned(run, made("a dog", "a film"), tiny_prepared, display)
    again.measure(["both"])
    assert again.reference_score == first.reference_score
    of_first, of_again = (stored.task("last").untuned["both"][0] for stored in (first, again))
    for geometry, values in of_first.items():
        np.testing.assert_array_equal(values.closeness, of_again[geometry].closeness)


def test_changed_data_is_rejected(tmp_path: Path, tiny_prepared: Prepared) -> None:
    run = LocalFolder(tmp_path)
    Untuned(run, made("a dog"), tiny_prepared, ListDisplay()).measure(["both"])
    with pytest.raises(InputError, match="has changed"):
        Untuned(run, made("a cat"), tiny_prepared, ListDisplay())
