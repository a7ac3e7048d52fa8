"""Joining recordings, naming their columns, and choosing parts of them."""

from typing import Any

import pytest

from raysweep.errors import InputError
from raysweep.paper.recording import Configuration, Recording, Scores, column_names, joined, loss_name, selected


def made(model: str, *values: dict[str, Any], setting: str = "", **others: str) -> Recording:
    configurations = tuple(Configuration(each, {1: {"dev": Scores(0.7, 0.4)}}) for each in values)
    return Recording(
        model, others.pop("origin", model), others.pop("place", model), configurations, setting=setting, **others
    )


def test_parts_of_a_grid_are_joined_where_their_setting_is_the_same() -> None:
    few, many = {"examples_per_rung": 50}, {"examples_per_rung": 500}
    together = joined([made("m", few, setting="s"), made("m", many, setting="s"), made("n", many, setting="t")])
    assert [[dict(each.values) for each in recording.configurations] for recording in together] == [[few, many], [many]]
    assert together[0].origin == "m + m"
    apart = [made("m", few, setting="s"), made("m", few, setting="s")]
    assert joined(apart) == apart, "two runs of one configuration are compared, not mixed"
    unknown = [made("m", few), made("m", many)]
    assert joined(unknown) == unknown


def test_a_column_has_the_models_name_and_what_else_is_needed() -> None:
    assert column_names([made("m"), made("n", dataset="d")]) == ["m", "n"]
    one, other = made("m", dataset="sst2", origin="a"), made("m", dataset="mr", origin="b")
    assert column_names([one, other, made("n", dataset="mr")]) == ["m, sst2", "m, mr", "n"]
    one, other = made("m", retrieval="k = 4", origin="a"), made("m", retrieval="k = 8", origin="b")
    assert column_names([one, other]) == ["m, k = 4", "m, k = 8"]
    one, other = made("m", origin="run", place="x/run"), made("m", origin="run", place="y/run")
    assert column_names([one, other]) == ["m, x/run", "m, y/run"]
    with pytest.raises(InputError, match="x/run is given twice"):
        column_names([one, one])


def test_parts_are_chosen_by_values() -> None:
    recordings = [
        made("m", {"loss": "triplet", "margin": 0.1}, {"loss": "triplet", "margin": 1}, dataset="d"),
        made("n", {"loss": "triplet", "margin": 1, "restart": True}),
    ]

    def chosen(**where: str) -> list[list[dict[str, Any]]]:
        return [[dict(each.values) for each in part.configurations] for part in selected(recordings, where)]

    assert chosen(margin="1.0") == [[{"loss": "triplet", "margin": 1}], [dict(recordings[1].configurations[0].values)]]
    assert chosen(margin="0.10") == [[{"loss": "triplet", "margin": 0.1}]]
    assert len(chosen(model="m", margin="1")) == 1
    assert len(chosen(dataset="d")) == 1
    assert len(chosen(restart="true")) == 1
    for where, message in [
        ({"margins": "1"}, "no configuration has a parameter 'margins'"),
        ({"margin": "2"}, "no configuration has margin '2'; there are 0.1, 1"),
        ({"margin": "x"}, "no configuration has margin 'x'"),
        ({"model": "o"}, "no configuration has model 'o'; there are m, n"),
    ]:
        with pytest.raises(InputError, match=f"^--where: {message}"):
            selected(recordings, where)


def test_losses_of_the_library_have_raysweeps_names() -> None:
    assert loss_name("MultipleNegativesRankingLoss") == "multiple_negatives"
    assert loss_name("TripletLoss") == loss_name("triplet") == "triplet"
    assert loss_name("MyLoss") == "MyLoss"
