"""Settings of a vLLM older than they are."""

import pytest

from capplan.engines.catalog import VLLM
from capplan.errors import InputError
from capplan.planning.configure.configuration import configurations, only_configuration
from capplan.planning.settings.plan import PlanSettings, SimulateSettings

GIVEN = {
    "all2all_backend": "allgather_reducescatter",
    "decode_context_parallel_size": 8,
    "enable_eplb": True,
    "eplb_config": '{"num_redundant_experts": 32}',
    "prefill_schedule_interval": 16,
}
BESIDE = {"enable_expert_parallel": True, "data_parallel_size": "8"}


def asked(version, **given):
    return PlanSettings(
        llm="DeepSeek-R1", gpu="H200", engine=f"vllm@{version}", **given
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", VLLM.since)
def test_a_setting_is_refused_of_releases_before_its_first(name):
    given = {name: GIVEN[name]}
    if name != "decode_context_parallel_size":
        given |= BESIDE | ({"enable_eplb": True} if "eplb" in name else {})
    flag = name.replace("_", "-")

    # 0.8 had none of them. Of EPLB the flag is looked at before its settings.
    named = "--enable-eplb" if "eplb" in name else f"--{flag}"
    with pytest.raises(InputError, match=f"{named} is not known of vLLM 0.8; expected"):
        list(configurations(asked("0.8", **given)))
    assert list(configurations(asked(VLLM.since[name], **given)))
    # A release without its patch may be the one that has it.
    assert list(configurations(asked(VLLM.since[name].rpartition(".")[0], **given)))


@pytest.mark.parametrize("method", VLLM.drafts_since)
def test_a_method_of_drafts_is_refused_of_releases_before_its_first(method):
    config = f'{{"method": "{method}", "num_speculative_tokens": 1}}'
    given = {"speculative_config": config, "acceptance_rates": (0.5,)}

    with pytest.raises(InputError, match=f'method "{method}" is not known of vLLM 0.8'):
        only_configuration(
            SimulateSettings(
                llm="DeepSeek-R1", gpu="H200", tp=8, engine="vllm@0.8.0", **given
            )
        )


@pytest.mark.filterwarnings("ignore")
def test_a_release_candidate_counts_as_its_release():
    settings = PlanSettings(llm="Llama-3.1-8B", gpu="H100", tp=1, engine="vllm@0.13rc1")

    (found,) = configurations(settings)
    (older,) = configurations(settings.model_copy(update={"engine": "vllm@0.13"}))

    assert found.engine == older.engine
