"""Golden results: floats are compared to the bit, and each difference is named by its place."""

import math

from benchmarks.golden import differences, exact


def test_floats_that_differ_in_the_last_bit_differ() -> None:
    golden = {"points": [{"polarity": 0.1 + 0.2, "label": None}, "knee"]}
    changed = {"points": [{"polarity": 0.3, "label": None}, "knee"]}
    assert list(differences(exact(golden), exact(golden))) == []
    [difference] = differences(exact(golden), exact(changed))
    assert difference.startswith("/points/0/polarity: ")


def test_missing_and_new_values_differ() -> None:
    assert (
        len(list(differences(exact({"a": [1.0, 2.0], "b": 0}), exact({"a": [1.0], "c": 0})))) == 3
    )


def test_values_that_are_not_finite_can_be_recorded() -> None:
    values = exact({"nan": math.nan, "infinity": math.inf})
    assert list(differences(values, exact({"nan": math.nan, "infinity": math.inf}))) == []
