import pytest

from capplan.deployment.cold_start import ColdStart, cold_start, parse_cold_start_s
from capplan.errors import InputError


def test_a_cold_start_is_the_sum_of_four_parts_that_are_all_assumed():
    # 8.03 billion parameters in 16 bits: 240 + 10/0.5 + 16.06/2 + 60 s.
    cold = cold_start(16.06e9, 8_030_000_000)

    assert cold.cold_start_s == pytest.approx(240 + 20 + 8.03 + 60)
    assert cold.assumed == ("node", "image", "weights", "engine")


@pytest.mark.parametrize(
    ("parameter_count", "expected_s"), [(9_999_999_999, 60), (10_000_000_000, 150)]
)
def test_a_large_llm_compiles_and_captures_for_longer(parameter_count, expected_s):
    assert cold_start(1e9, parameter_count).engine_s == expected_s


def test_one_time_may_be_given_for_all():
    assert parse_cold_start_s("4m") == 240
    with pytest.raises(InputError, match="'-1s' is negative; expected a time >= 0"):
        parse_cold_start_s("-1s")
    with pytest.raises(InputError, match="is not a duration"):
        parse_cold_start_s("soon")


def test_what_no_replica_takes_is_refused():
    with pytest.raises(InputError, match=r"engine_s is -1.*expected >= 0"):
        ColdStart(0.0, 0.0, 0.0, -1.0)
