"""Joining scores of runs, naming their columns, and selecting parts of them."""

from typing import Any

import pytest

from raysweep.errors import InputError
from raysweep.paper.model_scores import (
    Configuration,
    ModelScores,
    Scores,
    column_names,
    join_runs,
    loss_name,
    select,
)


def make_scores(
    model: str, *values: dict[str, Any], setting: str = "", **others: str
) -> ModelScores:
    configurations = tuple(Configuration(one, {1: {"dev": Scores(0.7, 0.4)}}) for one in values)
    return ModelScores(
        model,
        others.pop("origin", model),
        others.pop("place", model),
        configurations,
        setting=setting,
        **others,
    )


def test_parts_of_a_grid_with_one_setting_are_joined() -> None:
    few, many = {"examples_per_rung": 50}, {"examples_per_rung": 500}
    together = join_runs(
        [
            make_scores("m", few, setting="s"),
            make_scores("m", many, setting="s"),
            make_scores("n", many, setting="t"),
        ]
    )
    assert [[dict(member.values) for member in model.configurations] for model in together] == [
        [few, many],
        [many],
    ]
    assert together[0].origin == "m + m"
    apart = [make_scores("m", few, setting="s"), make_scores("m", few, setting="s")]
    assert join_runs(apart) == apart, "two runs of one configuration are compared, not joined"
    unknown = [make_scores("m", few), make_scores("m", many)]
    assert join_runs(unknown) == unknown


def test_column_names_are_extended_until_unique() -> None:
    assert column_names([make_scores("m"), make_scores("n", dataset="d")]) == ["m", "n"]
    one, other = (
        make_scores("m", dataset="sst2", origin="a"),
        make_scores("m", dataset="mr", origin="b"),
    )
    assert column_names([one, other, make_scores("n", dataset="mr")]) == ["m, sst2", "m, mr", "n"]
    one, other = (
        make_scores("m", retrieval="k = 4", origin="a"),
        make_scores("m", retrieval="k = 8", origin="b"),
    )
    assert column_names([one, other]) == ["m, k = 4", "m, k = 8"]
    one, other = (
        make_scores("m", origin="run", place="x/run"),
        make_scores("m", origin="run", place="y/run"),
    )
    assert column_names([one, other]) == ["m, x/run", "m, y/run"]
    with pytest.raises(InputError, match="x/run.*twice"):
        column_names([one, one])


def test_parts_are_selected_by_values() -> None:
    models = [
        make_scores(
            "m", {"loss": "triplet", "margin": 0.1}, {"loss": "triplet", "margin": 1}, dataset="d"
        ),
        make_scores("n", {"loss": "triplet", "margin": 1, "restart": True}),
    ]

    def chosen(**where: str) -> list[list[dict[str, Any]]]:
        return [
            [dict(member.values) for member in part.configurations]
            for part in select(models, where)
        ]

    assert chosen(margin="1.0") == [
        [{"loss": "triplet", "margin": 1}],
        [dict(models[1].configurations[0].values)],
    ]
    assert chosen(margin="0.10") == [[{"loss": "triplet", "margin": 0.1}]]
    assert len(chosen(model="m", margin="1")) == 1
    assert len(chosen(dataset="d")) == 1
    assert len(chosen(restart="true")) == 1
    for where, message in [
        ({"margins": "1"}, ".*margins '1'; allowed: model, dataset"),
        ({"margin": "2"}, ".*margin '2'; allowed: 0.1, 1"),
        ({"margin": "x"}, ".*margin 'x'"),
        ({"model": "o"}, ".*model 'o'; allowed: m, n"),
    ]:
        with pytest.raises(InputError, match=f"^--where: {message}"):
            select(models, where)


def test_library_class_names_become_loss_names() -> None:
    assert loss_name("MultipleNegativesRankingLoss") == "multiple_negatives"
    assert loss_name("TripletLoss") == loss_name("triplet") == "triplet"
    assert loss_name("MyLoss") == "MyLoss"
