"""What holds for every target: the plan's flags, GPUs, probes, and what it rests on."""

import hashlib
import json
import shlex

import hypothesis
import pytest
import yaml
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from capplan.report.exports import TARGETS, exported
from tests.report.exports.plans import (
    FLAGS,
    LLAMA_8B,
    LLAMA_70B,
    NIXL,
    one_pool,
    two_pools,
    words,
    written,
)
from tests.report.exports.pods import values_of

APART = ("vllm", "kserve", "llm-d", "dynamo", "ray")
"""Targets that have a proxy for disaggregated serving, and the bare commands."""


def flags(listed):
    """Return flags with their values from a list of words."""
    found, name = {}, ""
    for word in listed:
        if word.startswith("--"):
            name, found[word] = word, None
        elif name:
            found[name] = word
    return found


def started(target, text):
    """Return the checkpoint and the flags of each replica that a text starts."""
    if target == "vllm":
        lines = [x for x in text.splitlines() if "vllm serve" in x and x[0] != "#"]
        commands = [
            shlex.split(x.partition("exec ")[2].removesuffix(" ;;")) for x in lines
        ]
        return [(x[2], flags(x[3:])) for x in commands]
    found = list(yaml.safe_load_all(text))
    if target == "skypilot":
        command = shlex.split(found[0]["run"])
        return [(command[2], flags(command[3:]))]
    if target == "compose":
        commands = values_of("command", found)
        return [(x[0], flags(x[1:])) for x in commands]
    if target in ("k8s", "lws"):
        commands = values_of("args", found)
        return [(x[0], flags(x[1:])) for x in commands]
    if target == "dynamo":
        of = [x for x in values_of("args", found) if "--model" in x]
        return [(x[1], {k: v for k, v in flags(x[2:]).items()}) for x in of]
    if target == "kserve":
        model = found[0]["spec"]["model"]["name"]
        env = [x for part in values_of("env", found) for x in part]
        lines = [x["value"] for x in env if x["name"] == "VLLM_ADDITIONAL_ARGS"]
        return [(model, flags(shlex.split(x))) for x in lines]
    if target == "llm-d":
        model = found[0]["modelArtifacts"]["name"]
        pools = [found[0][x] for x in ("decode", "prefill") if found[0][x]["create"]]
        return [
            (
                model,
                {
                    "--tensor-parallel-size": str(x["parallelism"]["tensor"]),
                    **flags(x["containers"][0]["args"]),
                },
            )
            for x in pools
        ]
    kwargs = values_of("engine_kwargs", found)
    models = [x["model_source"] for x in values_of("model_loading_config", found)]
    return [
        (model, dict(map(_flag, of.items())))
        for model, of in zip(models, kwargs, strict=True)
    ]


def _flag(pair):
    """Return an engine argument as the flag that it stands for."""
    name, value = pair[0].replace("_", "-"), pair[1]
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}", None
    if isinstance(value, dict):
        return f"--{name}", json.dumps(value, separators=(",", ":"))
    return f"--{name}", str(value)


def main_text(target, path, **given):
    texts, _ = exported(path, target, **given)
    return next(iter(texts.values()))


@pytest.mark.parametrize("target", TARGETS)
def test_every_replica_is_started_with_each_flag_of_the_plan(target, tmp_path):
    path = written(one_pool(), tmp_path)

    replicas = started(target, main_text(target, path))

    expected = {"--tensor-parallel-size": "4", **FLAGS}
    assert replicas
    for checkpoint, given in replicas:
        assert checkpoint == LLAMA_70B
        assert given == expected


@pytest.mark.parametrize("target", APART)
def test_two_pools_are_started_each_with_its_own_flags(target, tmp_path):
    path = written(two_pools(), tmp_path)

    replicas = started(target, main_text(target, path))

    for _, given in replicas:
        given.pop("--disaggregation-mode", None)  # of Dynamo alone
    assert {checkpoint for checkpoint, _ in replicas} == {LLAMA_8B}
    assert sorted(x.pop("--tensor-parallel-size") for _, x in replicas) == ["1", "2"]
    expected = {**FLAGS, "--kv-transfer-config": NIXL}
    assert [given for _, given in replicas] == [expected, expected]


@pytest.mark.parametrize("target", sorted(set(TARGETS) - set(APART)))
def test_a_target_without_a_proxy_refuses_two_pools(target, tmp_path):
    path = written(two_pools(), tmp_path)

    with pytest.raises(Exception, match=f"{target} has no proxy .* --to llm-d"):
        exported(path, target)


@pytest.mark.parametrize("target", TARGETS)
def test_each_file_begins_with_the_plan_it_is_of_and_what_that_assumed(
    target, tmp_path
):
    path = written(one_pool(), tmp_path)

    texts, export = exported(path, target)

    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    for text in texts.values():
        lines = text.splitlines()
        head = [x for x in lines if x.startswith("# ")]
        start = 1 if target == "vllm" else 0
        assert lines[start : start + len(head)] == head
        assert digest in head[0]
        assert "capplan " in head[0]
        together = "\n".join(head)
        assert "24 requests/s" in together
        assert "ttft ≤ 1.5 s" in together
        assert "trace.csv" in together
        assert "99.5 %" in together
        assert "assumed: node, image, weights, engine" in together
        for line in (*export.lacks, *export.needs, *export.unverified):
            assert line in together


@pytest.mark.parametrize("target", sorted(set(TARGETS) - {"vllm", "ray", "kserve"}))
def test_an_image_that_was_given_stands_in_the_file(target, tmp_path):
    path = written(one_pool(), tmp_path)

    text = main_text(target, path, image="registry.local:5000/own/vllm:1.2")

    assert "registry.local:5000/own/vllm:1.2" in text.split("not verified")[-1]
    assert "vllm-openai" not in text


@pytest.mark.parametrize("target", sorted(set(TARGETS) - {"vllm"}))
def test_a_replica_has_the_gpus_of_its_tp(target, tmp_path):
    text = main_text(target, written(one_pool(), tmp_path))

    found = list(yaml.safe_load_all(text))
    counts = {
        "compose": [len(x) for x in values_of("device_ids", found)],
        "skypilot": [int(x.split(":")[1]) for x in values_of("accelerators", found)],
        "ray": values_of("tensor_parallel_size", found),
    }.get(target, [int(x["nvidia.com/gpu"]) for x in values_of("limits", found)])
    assert set(counts) == {4}


@pytest.mark.parametrize("target", ["k8s", "lws", "kserve", "llm-d"])
@pytest.mark.parametrize(("cold_start_s", "tries"), [(None, 48), (95.0, 10), (0.0, 1)])
def test_the_startup_probe_waits_for_the_cold_start(
    target, cold_start_s, tries, tmp_path
):
    path = written(one_pool(), tmp_path)

    text = main_text(target, path, cold_start_s=cold_start_s)

    (probe,) = values_of("startupProbe", list(yaml.safe_load_all(text)))
    assert (probe["periodSeconds"], probe["failureThreshold"]) == (10, tries)


@pytest.mark.parametrize("target", ["k8s", "lws", "kserve", "llm-d", "dynamo"])
def test_a_pod_that_is_to_stop_has_the_time_of_the_longest_requests(target, tmp_path):
    text = main_text(target, written(one_pool(), tmp_path))

    documents = list(yaml.safe_load_all(text))
    assert values_of("terminationGracePeriodSeconds", documents) == [53]  # 23 + 30
    drains = values_of("preStop", documents)
    assert drains == [{"exec": {"command": ["sleep", "23"]}}] * (target != "dynamo")


@pytest.mark.parametrize("target", TARGETS)
def test_a_text_of_the_plan_stays_in_its_comment(target, tmp_path):
    document = one_pool()
    document["trace_source"] = "a.csv\nkind: Evil\u2028evil: 1\x85x: 2\x00\x07"
    path = written(document, tmp_path)

    texts, _ = exported(path, target)

    clean = exported(written(one_pool(), tmp_path), target)[0]
    for name, text in texts.items():
        body = [x for x in text.splitlines() if not x.startswith("#")]
        assert body == [x for x in clean[name].splitlines() if not x.startswith("#")]


@pytest.mark.parametrize("target", sorted(set(TARGETS) - {"vllm"}))
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@hypothesis.given(text=st.text(max_size=40))
def test_whatever_the_source_of_the_trace_the_yaml_is_the_same(target, text, tmp_path):
    document = one_pool() | {"trace_source": text}
    path = written(document, tmp_path)

    found = exported(path, target)[0]

    clean = exported(written(one_pool(), tmp_path), target)[0]
    for name in clean:
        read = list(yaml.safe_load_all(found[name]))
        assert read == list(yaml.safe_load_all(clean[name]))


@pytest.mark.parametrize("target", TARGETS)
def test_the_same_plan_gives_the_same_bytes(target, tmp_path):
    path = written(one_pool(), tmp_path)

    assert exported(path, target)[0] == exported(path, target)[0]


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_says_what_it_has_in_place_of_the_plans_router(target, tmp_path):
    path = written(one_pool(router="session"), tmp_path)

    _, export = exported(path, target)

    assert any("session" in line for line in export.lacks)


@pytest.mark.parametrize("target", sorted(set(TARGETS) - {"vllm"}))
def test_a_rebalancer_is_in_no_target(target, tmp_path):
    plan = one_pool() | {"settings": {"rebalancer": "llumnix"}}

    _, export = exported(written(plan, tmp_path), target)

    assert any("rebalancer llumnix" in line for line in export.lacks)


@pytest.mark.parametrize(
    ("target", "router", "where", "name"),
    [
        ("dynamo", "dynamo-kv:temperature=0.5", "args", "kv"),
        ("dynamo", "jsq", "args", "least-loaded"),
        ("skypilot", "round-robin", "load_balancing_policy", "round_robin"),
        ("skypilot", "jsq", "load_balancing_policy", "least_load"),
    ],
)
def test_the_plans_router_is_asked_for_where_the_target_has_it(
    target, router, where, name, tmp_path
):
    path = written(one_pool(router=router), tmp_path)

    texts, export = exported(path, target)

    found = values_of(where, list(yaml.safe_load_all(next(iter(texts.values())))))
    assert name in (found[0] if where == "args" else found)
    assert not any("the plan's router" in line for line in export.lacks)


def test_the_words_of_a_launch_line_come_back():
    from capplan.planning.configure.launch import read_launch

    line = shlex.join(words("org/llm", 2, ("--kv-transfer-config", NIXL)))

    assert read_launch(line).line == line
