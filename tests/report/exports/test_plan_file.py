"""A plan.json that is old, forged or not for a container is refused in one line."""

import json

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.report.exports import TARGETS, exported
from capplan.report.exports.plan_file import read_planned
from tests.report.exports.plans import (
    COLD_START,
    LLAMA_70B,
    one_pool,
    two_pools,
    words,
    written,
)


def test_a_plan_that_was_changed_after_it_was_sealed_is_refused(tmp_path):
    path = written(one_pool(), tmp_path)
    document = json.loads(path.read_text())
    document["best"]["replica_count"] = 2
    path.write_text(json.dumps(document))

    with pytest.raises(InputError, match="digest does not match"):
        read_planned(path)


def test_an_older_schema_is_refused(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(one_pool() | {"schema": "capplan.plan/1"}))

    with pytest.raises(InputError, match=r"'capplan\.plan/1'; this release reads"):
        read_planned(path)


@pytest.mark.parametrize("key", ["e2e_p99_s", "cold_start", "weight_bytes"])
def test_a_plan_of_the_release_before_is_to_be_planned_again(key, tmp_path):
    document = one_pool()
    del document["best"][key]

    with pytest.raises(InputError, match=rf"has no best\.{key}.*plan again"):
        read_planned(written(document, tmp_path))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"replica_count": 0}, r"best\.replica_count is '0'"),
        ({"replica_count": 2.5}, r"best\.replica_count is '2.5'"),
        ({"replica_count": 10**9}, r"best\.replica_count is"),
        ({"tp": "4"}, r"best\.tp is '4'"),
        ({"tp": 8}, r"launch line is not of its TP 8"),
        ({"e2e_p99_s": -1.0}, r"best\.e2e_p99_s is"),
        ({"e2e_p99_s": None}, r"best\.e2e_p99_s is"),
        ({"e2e_p99_s": 1e300}, r"best\.e2e_p99_s is"),
        ({"replica_count_range": [1]}, r"best\.replica_count_range is"),
        ({"replica_count_range": [1, "9"]}, r"best\.replica_count_range\.1 is"),
        ({"price": {"gpus_per_node": 0}}, r"best\.price\.gpus_per_node is"),
        ({"pools": [{}]}, r"has no best\.pools\.0\.gpu"),
        ({"gpu": ["H100"]}, r"best\.gpu is"),
        ({"launch_line": "rm -rf /"}, "not vllm serve CHECKPOINT"),
        ({"launch_line": "vllm serve --port 1"}, "not vllm serve CHECKPOINT"),
        ({"launch_line": "vllm serve a/b c"}, "not vllm serve CHECKPOINT"),
        ({"launch_line": "vllm serve a/b --A 1"}, "not vllm serve CHECKPOINT"),
        ({"launch_line": "vllm serve a/b --x 1 2"}, "not vllm serve CHECKPOINT"),
        ({"launch_line": "vllm serve 'a/b\n' --x 1"}, "not vllm serve CHECKPOINT"),
        ({"launch_line": "vllm serve 'a/b"}, "No closing quotation"),
        (
            {"launch_line": " ".join(words("a/'$(X)'", 4))},
            r"\$",
        ),
        ({"launch_line": " ".join(words("a/'{{b}}'", 4))}, "{{"),
        ({"launch_line": None}, "no LLM is named"),
        ({"launch_line": "", "launch_notes": ["planned with SGLang"]}, "with SGLang"),
    ],
)
def test_a_forged_figure_is_named(changed, said, tmp_path):
    path = written(one_pool(**changed), tmp_path)

    with pytest.raises(InputError, match=said) as refused:
        read_planned(path)

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "document",
    [
        {"best": 3},
        {"best": []},
        {"best": {}},
        {"certificate": None},
        {"best": {"pools": 1}},
    ],
    ids=str,
)
def test_a_plan_without_its_parts_is_refused(target, document, tmp_path):
    whole = one_pool() | document
    path = tmp_path / "plan.json"
    if whole["certificate"] is None:
        path.write_text(json.dumps(whole))
    else:
        path = written(whole, tmp_path)

    with pytest.raises(InputError, match=r"plan\.json: "):
        exported(path, target)


@pytest.mark.parametrize(
    "roles", [("decode", "prefill"), ("prefill", "prefill"), ("", "decode"), ("x", "y")]
)
def test_pools_are_one_for_prompts_and_one_that_decodes(roles, tmp_path):
    document = two_pools()
    for pool, role in zip(document["best"]["pools"], roles, strict=True):
        pool["role"] = role

    with pytest.raises(InputError, match=r"best\.pools"):
        read_planned(written(document, tmp_path))


WRONG = [None, "", -1, 0, 1, 1e308, True, [], {}, "x\ny: 1", "{{x}}", "$(A)", 10**30]
WRONG += ["\u2028", "\ud800", 3.5, "vllm serve a/b --tensor-parallel-size 4"]


def places(node, path=()):
    """Yield the paths of all that a document holds."""
    parts = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in parts:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_forged_is_refused_in_one_line_or_cannot_inject(data, tmp_path):
    document = data.draw(st.sampled_from([one_pool, two_pools]))()
    found = [path for path in places(document) if path[0] != "certificate"]
    *where, key = data.draw(st.sampled_from(found))
    part = document
    for each in where:
        part = part[each]
    part[key] = data.draw(st.sampled_from(WRONG))
    path = written(document, tmp_path)

    for target in TARGETS:
        refused = ""
        try:
            result = exported(path, target)
        except InputError as error:
            refused = str(error)
        assert "\n" not in refused
        if refused or isinstance(result, str):  # infeasible
            continue
        for name, text in result[0].items():
            body = [x for x in text.splitlines() if not x.startswith("#")]
            assert text.encode()
            assert not any("{{" in x or "$(A)" in x for x in body)
            if name.endswith(".yaml"):
                assert list(yaml.safe_load_all(text))


def test_an_infeasible_plan_says_why(tmp_path):
    document = one_pool() | {"status": "infeasible", "infeasible_reason": "too slow"}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document | {"best": None, "certificate": None}))

    assert read_planned(path) == "infeasible: too slow"


def test_a_checkpoint_that_nobody_published_is_asked_for(tmp_path):
    line = " ".join(words("YOUR_CHECKPOINT", 4))
    notes = ["no checkpoint of x in int4 is listed; name yours"]
    path = written(one_pool(launch_line=line, launch_notes=notes), tmp_path)

    with pytest.raises(InputError, match="name yours: give --checkpoint"):
        read_planned(path)

    assert read_planned(path, "my-org/my.llm_2").checkpoint == "my-org/my.llm_2"


@pytest.mark.parametrize(
    "wrong", ["llm", "a/b/c", "a/b;c", "../b", "a/", "/a", "a/b\n", "ä/b", "-a/b"]
)
def test_a_checkpoint_that_is_no_repository_is_refused(wrong, tmp_path):
    path = written(one_pool(), tmp_path)

    with pytest.raises(InputError, match="expected ORGANISATION/NAME"):
        read_planned(path, wrong)


@pytest.mark.parametrize("target", sorted(set(TARGETS) - {"vllm"}))
def test_a_folder_of_this_machine_is_no_checkpoint_for_a_container(target, tmp_path):
    line = " ".join(words("models/mine", 4))
    document = one_pool(launch_line=line) | {"llm": "models/mine"}
    path = written(document, tmp_path)

    with pytest.raises(InputError, match="no Hugging Face repository"):
        exported(path, target)

    assert LLAMA_70B in str(exported(path, target, checkpoint=LLAMA_70B)[0])


def test_the_commands_take_a_folder(tmp_path):
    line = " ".join(words("models/mine", 4))
    document = one_pool(launch_line=line) | {"llm": "models/mine"}

    texts, _ = exported(written(document, tmp_path), "vllm")

    assert "exec vllm serve models/mine" in texts["vllm.sh"]


def test_a_cold_start_that_is_not_known_is_asked_for(tmp_path):
    path = written(one_pool(cold_start=None, weight_bytes=None), tmp_path)

    with pytest.raises(InputError, match="give --cold-start"):
        read_planned(path)

    assert read_planned(path, cold_start_s=60.0).pool.cold_start_s == 60


@pytest.mark.parametrize("part", ["node_s", "engine_s"])
def test_a_part_of_the_cold_start_is_a_time(part, tmp_path):
    path = written(one_pool(cold_start=COLD_START | {part: -1}), tmp_path)

    with pytest.raises(InputError, match=rf"best\.cold_start\.{part} is '-1'"):
        read_planned(path)


@pytest.mark.parametrize("target", ["compose", "k8s", "kserve", "llm-d", "dynamo"])
def test_a_gpu_that_is_not_nvidias_is_refused(target, tmp_path):
    path = written(one_pool(gpu="MI300X"), tmp_path)

    with pytest.raises(
        InputError, match="'MI300X': exported deployments are of NVIDIA"
    ):
        exported(path, target)


@pytest.mark.parametrize("target", sorted(set(TARGETS) - {"vllm", "lws"}))
def test_a_replica_larger_than_a_node_is_left_to_lws(target, tmp_path):
    path = written(one_pool(price={"gpus_per_node": 2}), tmp_path)

    with pytest.raises(InputError, match=r"spans 2 nodes of 2.*--to lws"):
        exported(path, target)


@pytest.mark.parametrize("target", ["vllm", "ray"])
def test_an_image_has_no_effect_where_none_is_named(target, tmp_path):
    path = written(one_pool(), tmp_path)

    with pytest.raises(InputError, match=f"no effect on --to {target}"):
        exported(path, target, image="a:b")


@pytest.mark.parametrize("wrong", ["", "a b", "a:b\nc: d", "$(x)", "-x", "a:b:c"])
def test_an_image_that_is_none_is_refused(wrong, tmp_path):
    path = written(one_pool(), tmp_path)

    with pytest.raises(InputError, match="expected NAME:TAG"):
        exported(path, "k8s", image=wrong)


def test_names_of_resources_are_dns_labels(tmp_path):
    for checkpoint in ("a/" + "X" * 90, "a/1.2_3--", "9/9"):
        name = read_planned(written(one_pool(), tmp_path), checkpoint).name

        assert len(name) <= 40
        assert name.startswith("llm-")
        assert name.strip("abcdefghijklmnopqrstuvwxyz0123456789-") == ""
        assert not name.endswith("-")


def test_an_unknown_target_is_refused_with_the_nearest(tmp_path):
    path = written(two_pools(), tmp_path)

    with pytest.raises(InputError, match="did you mean kserve"):
        exported(path, "kserv")
