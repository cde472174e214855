"""Exports of replicas whose ranks step together."""

import pytest
import yaml

from capplan.errors import InputError
from capplan.report.exports import TARGETS, exported
from tests.report.exports.plans import LLAMA_70B, one_pool, pool_values, written

MORE = ("--data-parallel-size", "4", "--enable-expert-parallel")
OF_A_NODE = ("vllm", "compose", "k8s", "lws", "skypilot")


def ranks(gpus_per_node=8):
    """3 replicas of DP 4 × TP 2 with EP 8."""
    best = pool_values(LLAMA_70B, 2, 3, more=MORE)
    best |= {"layout": "tp2-dp4-ep8", "gpus_per_replica": 8}
    best["price"]["gpus_per_node"] = gpus_per_node
    return one_pool(**best)


@pytest.mark.parametrize("target", OF_A_NODE)
def test_ranks_on_a_node_are_one_command_with_all_their_gpus(target, tmp_path):
    texts, _ = exported(written(ranks(), tmp_path), target)

    (text,) = [text for name, text in texts.items() if "monitor" not in name][:1]
    assert "--data-parallel-size" in text
    if target in ("k8s", "lws"):
        document = next(yaml.safe_load_all(text))
        assert "'nvidia.com/gpu': '8'" in str(document) or (
            "'nvidia.com/gpu': 8" in str(document)
        )
    if target == "compose":
        (service,) = yaml.safe_load(text)["services"].values()
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert len(device["device_ids"]) == 8
    if target == "skypilot":
        assert yaml.safe_load(text)["resources"]["accelerators"] == "H100:8"


@pytest.mark.parametrize("target", sorted(set(TARGETS) - set(OF_A_NODE)))
def test_a_target_of_tp_degrees_refuses_ranks_in_a_line(target, tmp_path):
    with pytest.raises(InputError, match="ranks that step together") as caught:
        exported(written(ranks(), tmp_path), target)

    assert "expected --to k8s" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("target", OF_A_NODE)
def test_ranks_on_several_nodes_are_refused_with_what_they_need(target, tmp_path):
    with pytest.raises(InputError, match="--data-parallel-start-rank"):
        exported(written(ranks(gpus_per_node=4), tmp_path), target)


def test_a_command_of_other_gpus_than_the_plan_is_refused(tmp_path):
    document = ranks()
    document["best"]["gpus_per_replica"] = 16

    with pytest.raises(InputError, match="is not of its 16 GPUs"):
        exported(written(document, tmp_path), "vllm")
