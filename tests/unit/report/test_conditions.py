"""Conditions on points in the users' syntax."""

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.errors import InputError
from raysweep.report.choice import Condition, read_conditions, why_none

POINT = {
    "polarity": 0.8512,
    "similarity": 0.4,
    "accuracy": None,
    "width": 386,
    "kind": "concat",
    "loss": "triplet",
    "margin": 0.1234567,
    "learning_rate": 3e-05,
    "freeze_output_dense": True,
    "freezing": "emb+B0-2",
}
OTHER = {**POINT, "loss": "softmax", "margin": None}


@pytest.mark.parametrize(
    ("text", "is_met"),
    [
        ("polarity >= 0.85", True),
        ("polarity>=.85", True),
        ("  polarity  <  8.6e-1 ", True),
        ("polarity > 0.8512", False),
        ("polarity = 0.8512", True),
        ("P >= 85", True),
        ("P >= 85.2", False),
        ("polarity = 85.12", True),
        ("S <= 40", True),
        ("S < 1", True),
        ("accuracy >= 0", False),  # not measured
        ("accuracy = none", True),
        ("width <= 386", True),
        ("kind = concat", True),
        ("kind == concat", True),
        ("kind != concat", False),
        ("loss = triple", False),
        ("learning_rate = 0.00003", True),
        ("learning_rate > 1e-5", True),
        ("margin = 0.123", True),  # as tables show it
        ("margin = 0.124", False),
        ("margin != none", True),
        ("freeze_output_dense = true", True),
        ("freeze_output_dense != True", False),
        ("freezing = emb+B0-2", True),
        ("similarity > -0.5", True),
    ],
)
def test_conditions_are_evaluated(text, is_met):
    (condition,) = read_conditions([text], [POINT, OTHER])
    assert condition.is_met(POINT) == is_met


def test_missing_values_never_satisfy_an_ordering():
    for text, is_met in (
        ("margin > 0", False),
        ("margin <= 1", False),
        ("margin = none", True),
        ("margin != 0.1", True),
    ):
        (condition,) = read_conditions([text], [POINT, OTHER])
        assert condition.is_met(OTHER) == is_met


@pytest.mark.parametrize(
    ("text", "is_equal"),
    [
        ("rate = 0.000157", True),  # as tables show it
        ("rate = 1.57e-4", True),
        ("rate = 0.00015652", True),  # as it is
        ("rate = 0.00015649", False),
        ("rate = 0.0002", False),
        ("rate != 1.57e-4", False),
    ],
)
def test_numbers_equal_their_displayed_value(text, is_equal):
    (condition,) = read_conditions([text], [{"rate": 0.00015652}])
    assert condition.is_met({"rate": 0.00015652}) == is_equal


def test_a_parameter_that_no_point_has_is_allowed():
    (condition,) = read_conditions(
        ["margin < 0.2"], [{"loss": "softmax"}], parameters=["loss", "margin"]
    )
    assert (
        why_none([condition], [{"loss": "softmax"}])
        == "margin < 0.2 is met by 0 of 1 points (margin is missing)"
    )
    with pytest.raises(InputError, match=r"margins.*margin\?.*allowed: loss, margin$"):
        read_conditions(["margins < 0.2"], [{"loss": "softmax"}], parameters=["loss", "margin"])


GUARDS = ("sts-dev", "help.pages_2", "2012.MSRpar", "late")
GUARDED = {**POINT, "sts-dev": 0.81, "help.pages_2": 0.3, "2012.MSRpar": -0.1}


@pytest.mark.parametrize(
    ("text", "is_met"),
    [
        ("sts-dev >= 0.8", True),
        ("sts-dev>=0.82", False),
        ("sts-dev = 0.81", True),
        ("sts-dev = 81", True),
        ("help.pages_2 < .4", True),
        ("2012.MSRpar > -0.5", True),
        ("late >= 0", False),  # of no point that may be chosen
        ("late = none", True),
        ("sts-dev != none", True),
    ],
)
def test_guards_are_scores_by_name(text, is_met):
    (condition,) = read_conditions([text], [POINT, GUARDED], GUARDS)
    assert condition.is_met(GUARDED) == is_met
    assert not condition.is_order or not condition.is_met(POINT)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("sts-dev >= 101", "sts-dev is 101; allowed: [-1, 1]"),
        ("sts-dev >= high", "'high'; allowed: a number"),
        ("sts-b >= 0.8", "sts-b is unknown (did you mean sts-dev?); allowed: polarity, "),
        ("sts-b >= 0.8", ", freezing, 2012.MSRpar, help.pages_2, late, sts-dev"),
        ("0.8 <= sts-dev", "allowed: NAME, one of"),
    ],
)
def test_invalid_conditions_on_guards_are_rejected(text, problem):
    with pytest.raises(InputError) as error:
        read_conditions([text], [POINT, GUARDED], GUARDS)
    assert problem in str(error.value)


@given(
    st.floats(-1, 1),
    st.floats(0, 1),
    st.sampled_from(
        [(">=", operator.ge), ("<=", operator.le), (">", operator.gt), ("<", operator.lt)]
    ),
)
def test_orderings_compare_numbers(value, limit, order):
    sign, compare = order
    assert Condition("similarity", sign, repr(limit)).is_met({"similarity": value}) == compare(
        value, limit
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("polarity >= 850", "polarity is 850; allowed: [0, 1]"),
        ("similarity >= -45.5", "similarity is -45.5; allowed: [-1, 1]"),
        ("accuracy = 2000", "accuracy is 2000; allowed: [0, 1]"),
        ("polarity > -0.1", "polarity is -0.1; allowed: [0, 1]"),
        ("polarity >= 85%", "'85%'; allowed: a number"),
        ("polarity >= nan", "'nan'; allowed: a number"),
        ("polarity >= 1_0", "'1_0'; allowed: a number"),
        ("polarity >= 0.8 and width < 400", "allowed: a number; use a separate --where"),
        ("polarity => 0.85", "allowed: NAME, one of >= > <= < = !=, and a value"),
        ("polarity", "allowed: NAME, one of"),
        ("", "allowed: NAME, one of"),
        ("polarity >=", "allowed: NAME, one of"),
        ("0.8 <= polarity", "allowed: NAME, one of"),
        ("polarity >= 0.8\nwidth = 2", "allowed: NAME, one of"),
        ("__import__('os') = 1", "allowed: NAME, one of"),
        (
            "polarty >= 0.85",
            "polarty is unknown (did you mean polarity?); allowed: polarity, similarity, accuracy, width, kind, loss",
        ),
        ("loss >= 1", "loss is text, so only = and != apply; allowed: softmax, triplet"),
        ("kind < a", "kind is text"),
    ],
)
def test_invalid_conditions_are_rejected_with_allowed_values(text, problem):
    with pytest.raises(InputError) as error:
        read_conditions(["polarity >= 0.1", text], [POINT, OTHER])
    assert problem in str(error.value)
    assert text.split()[:1] == [] or text.split()[0] in str(error.value)
