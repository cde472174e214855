"""Names and settings of autoscalers, and what they refuse."""

import pytest

from capplan.errors import InputError
from capplan.simulator.autoscalers import AUTOSCALERS, Known, parse_autoscaler, start


@pytest.mark.parametrize("name", AUTOSCALERS)
def test_a_name_alone_has_every_setting_and_a_text_that_says_so(name):
    policy = parse_autoscaler(name)

    assert policy.name == name
    assert {"min", "max", "period"} <= policy.settings.keys()
    assert parse_autoscaler(str(policy)) == policy
    assert len(str(policy)) < 270


@pytest.mark.parametrize("name", AUTOSCALERS)
def test_bounds_that_are_crossed_are_refused(name):
    with pytest.raises(InputError, match="min is 5 and max 3; expected min <= max"):
        parse_autoscaler(f"{name}:min=5,max=3")


@pytest.mark.parametrize("name", sorted(set(AUTOSCALERS) - {"keda"}))
def test_none_may_scale_to_none_but_keda(name):
    with pytest.raises(InputError, match="min is '0'; expected a number from 1"):
        parse_autoscaler(f"{name}:min=0")
    assert parse_autoscaler("keda:min=0").settings["min"] == 0


@pytest.mark.parametrize("name", ["perfect", "schedule", "dynamo", "aladdin"])
def test_a_rate_that_is_not_known_is_asked_for_in_one_line(name):
    with pytest.raises(InputError) as refused:
        start(parse_autoscaler(name), Known())

    assert f"as in {name}:rate=4.2" in str(refused.value)
    assert "\n" not in str(refused.value)
    start(parse_autoscaler(f"{name}:rate=4.2"), Known())


def test_an_unknown_name_and_setting_offer_the_nearest():
    with pytest.raises(InputError, match="did you mean perfect"):
        parse_autoscaler("perfekt")
    with pytest.raises(InputError, match="did you mean down_window"):
        parse_autoscaler("hpa:downwindow=1m")


def test_times_are_given_with_their_unit():
    assert parse_autoscaler("hpa:down_window=10m").settings["down_window"] == 600.0
    with pytest.raises(InputError, match="expected a time from"):
        parse_autoscaler("hpa:down_window=600")
