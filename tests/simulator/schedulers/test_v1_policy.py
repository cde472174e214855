"""What an engine has beside plain V1 is told by the capabilities themselves."""

from dataclasses import replace

from capplan.deployment.engine import EngineSettings
from capplan.deployment.policy import Knob
from capplan.simulator.capable import Capability
from capplan.simulator.schedulers import parse_scheduler
from capplan.simulator.schedulers.v1_policy import v1_policy
from capplan.simulator.schedulers.vllm_v1 import CAPABILITIES

KNOB = {"most_prompts": Knob(0, optional=True)}
FEW_PROMPTS = Capability(
    lambda engine: engine.scheduler.settings.get("most_prompts", 0) > 0,
    knobs=KNOB,
    settings=KNOB,
    values=lambda engine: {"most_prompts": engine.scheduler.settings["most_prompts"]},
)


def test_a_capability_is_on_where_a_user_gives_its_knob(monkeypatch):
    monkeypatch.setitem(CAPABILITIES, "FEW_PROMPTS", FEW_PROMPTS)
    plain, few = (
        replace(EngineSettings(), scheduler=parse_scheduler(f"vllm-v1{given}"))
        for given in ("", ":most_prompts=3")
    )

    without, with_it = v1_policy(plain, {}), v1_policy(few, {})

    assert without.name == "vllm-v1"
    assert (with_it.name, with_it.settings) == (
        "vllm-v1+FEW_PROMPTS",
        {"most_prompts": 3},
    )
