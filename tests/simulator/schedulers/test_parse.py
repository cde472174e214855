"""Names and settings of schedulers, and what they refuse."""

import pytest

from capplan.errors import InputError
from capplan.simulator.schedulers import SCHEDULERS, parse_scheduler
from capplan.workload.trace import Trace

TRACE = Trace([4], [3], [0.0])
OTHERS = sorted(set(SCHEDULERS) - {"vllm-v1"})


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
def test_a_name_alone_has_every_setting_by_default(name):
    parsed, settings = parse_scheduler(name)

    again = ",".join(f"{key}={value}" for key, value in settings.items())
    assert parsed == name
    assert parse_scheduler(f"{name}:{again}" if again else name) == (name, settings)


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(InputError, match="did you mean vllm-v1"):
        parse_scheduler("vlm-v1")


def test_a_scheduler_without_settings_takes_none():
    with pytest.raises(InputError, match=r"'batch' is not a setting.*it has none"):
        parse_scheduler("vllm-v1:batch=3")
