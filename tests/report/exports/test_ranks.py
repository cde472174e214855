"""Exports of replicas whose ranks step together."""

import shlex

import pytest
import yaml

from capplan.errors import InputError
from capplan.report.exports import TARGETS, exported
from tests.report.exports.plans import (
    LLAMA_70B,
    NIXL,
    one_pool,
    pool_values,
    two_pools,
    written,
)
from tests.report.exports.reference import broken_rules, crd_schema, errors, json_schema
from tests.report.exports.test_custom_resources import unknown_keys
from tests.report.exports.test_targets import started

MORE = ("--data-parallel-size", "4", "--enable-expert-parallel")
OF_A_NODE = ("vllm", "compose", "k8s", "lws", "skypilot", "kserve", "llm-d")


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
    if target == "llm-d":
        assert yaml.safe_load(text)["decode"]["parallelism"]["data"] == 4
    else:
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
def test_a_target_not_known_to_start_ranks_refuses_them_in_a_line(target, tmp_path):
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


def pools_of_ranks():
    """3 replicas of TP 4 for prompts, 2 of DP 4 × TP 2 with EP 8 that decode."""
    document = two_pools()
    kv = ("--kv-transfer-config", NIXL, "--api-server-count", "1")
    decode = pool_values(LLAMA_70B, 2, 2, "decode", (*MORE, *kv))
    decode |= {"layout": "tp2-dp4-ep8", "gpus_per_replica": 8}
    document["best"]["pools"] = [pool_values(LLAMA_70B, 4, 3, "prefill", kv), decode]
    return document


@pytest.mark.parametrize("target", ["kserve", "llm-d"])
def test_pools_of_ranks_start_with_the_flags_of_the_plan(target, tmp_path):
    document = pools_of_ranks()
    texts, _ = exported(written(document, tmp_path), target)
    (text,) = texts.values()

    decode, prefill = (flags for _, flags in started(target, text))
    if target == "llm-d":  # the chart gives these of its own values
        decode |= {"--data-parallel-size": "4"}
    lines = [pool["launch_line"] for pool in document["best"]["pools"]]
    for line, found in zip(lines, (prefill, decode), strict=True):
        words = shlex.split(line)[3:]
        expected = {word for word in words if word.startswith("--")}
        assert set(found) == expected
    assert (decode["--tensor-parallel-size"], decode["--data-parallel-size"]) == (
        "2",
        "4",
    )
    assert "--data-parallel-size" not in prefill


def test_the_chart_takes_ranks_with_all_gpus_of_a_replica(tmp_path):
    texts, _ = exported(written(pools_of_ranks(), tmp_path), "llm-d")
    values = yaml.safe_load(texts["llm_d_values.yaml"])

    assert values["decode"]["parallelism"] == {"tensor": 2, "data": 4, "dataLocal": 4}
    assert values["prefill"]["parallelism"] == {"tensor": 4}
    # The chart warns where TP x local ranks is not what the container asks for.
    for role, gpus in (("decode", "8"), ("prefill", "4")):
        (container,) = values[role]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == gpus
    assert unknown_keys(values) == []
    assert errors(json_schema("llmd_values"), values) == []


def test_the_service_takes_ranks_with_all_gpus_of_a_replica(tmp_path):
    texts, _ = exported(written(pools_of_ranks(), tmp_path), "kserve")
    service = yaml.safe_load(texts["kserve.yaml"])
    spec = service["spec"]

    # Data parallelism of the service itself is of workers on other nodes.
    assert spec["parallelism"] == {"tensor": 2}
    assert "worker" not in spec
    for pool, gpus in ((spec, "8"), (spec["prefill"], "4")):
        (main,) = pool["template"]["containers"]
        assert main["resources"]["limits"]["nvidia.com/gpu"] == gpus
    assert errors(crd_schema("llmisvc", "v1alpha2"), service) == []
    assert broken_rules(spec) == []


@pytest.mark.parametrize("target", ["dynamo", "ray"])
def test_pools_of_ranks_are_refused_where_nothing_tells_that_they_start(
    target, tmp_path
):
    with pytest.raises(InputError, match="expected --to kserve, llm-d or vllm"):
        exported(written(pools_of_ranks(), tmp_path), target)


def stages(gpus_per_node=8):
    """3 replicas of two stages of TP 2."""
    more = ("--pipeline-parallel-size", "2")
    best = pool_values(LLAMA_70B, 2, 3, more=more)
    best |= {"layout": "tp2-pp2", "gpus_per_replica": 4}
    best["price"]["gpus_per_node"] = gpus_per_node
    return one_pool(**best)


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_stages_on_a_node_are_one_command_with_all_their_gpus(target, tmp_path):
    texts, _ = exported(written(stages(), tmp_path), target)

    for _, flags in started(target, next(iter(texts.values()))):
        assert flags["--pipeline-parallel-size"] == "2"
        assert flags["--tensor-parallel-size"] == "2"
    if target == "llm-d":
        values = yaml.safe_load(texts["llm_d_values.yaml"])
        (container,) = values["decode"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"


@pytest.mark.parametrize("flag", ["1 --pipeline-parallel-size 3", "x", "-1"])
def test_degrees_that_are_not_the_gpus_of_the_plan_are_refused(flag, tmp_path):
    document = ranks()
    line = document["best"]["launch_line"]
    document["best"]["launch_line"] = line.replace(
        "--data-parallel-size 4", f"--data-parallel-size {flag}"
    )

    with pytest.raises(InputError, match="is not of its 8 GPUs"):
        exported(written(document, tmp_path), "k8s")
