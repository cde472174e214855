"""Manifests by Kubernetes' own schemas, and the figures that scaling rests on."""

import re

import pytest

from capplan.report.exports.pods import GPU
from capplan.report.exports.scaling import METRIC, quantity
from capplan.simulator.autoscalers.horizontal import DEFAULT
from tests.report.exports.plans import one_pool
from tests.report.exports.pods import misspelt

RELEASE = "1.37"


def by_kind(documents):
    return {each["kind"]: each for each in documents if "kind" in each}


@pytest.fixture
def manifests(documents):
    """The manifests of the plan with one pool, by kind."""
    return by_kind(documents("k8s"))


def test_there_is_all_that_a_service_takes(manifests):
    kinds = ["Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget"]

    assert list(manifests) == kinds


def test_kubernetes_own_schemas_accept_the_manifests(manifests):
    validator = pytest.importorskip("kubernetes_validate")

    for each in manifests.values():
        validator.validate(each, RELEASE, strict=True)


@pytest.mark.parametrize(
    ("kind", "key", "wrong"),
    [
        ("Deployment", "replicas", "replica"),
        ("Deployment", "startupProbe", "startUpProbe"),
        ("Deployment", "terminationGracePeriodSeconds", "terminationGraceSeconds"),
        ("Deployment", "emptyDir", "emptyDirectory"),
        ("Service", "targetPort", "target"),
        ("HorizontalPodAutoscaler", "minReplicas", "minReplica"),
        ("HorizontalPodAutoscaler", "averageValue", "average"),
        ("PodDisruptionBudget", "maxUnavailable", "unavailable"),
    ],
)
def test_they_refuse_a_misspelt_field(kind, key, wrong, manifests):
    validator = pytest.importorskip("kubernetes_validate")
    spoiled = misspelt(manifests[kind], key, wrong)

    with pytest.raises(validator.ValidationError):
        validator.validate(spoiled, RELEASE, strict=True)


def test_the_autoscaler_aims_at_part_of_what_a_replica_sustains(manifests):
    spec = manifests["HorizontalPodAutoscaler"]["spec"]

    (metric,) = spec["metrics"]
    target = metric["pods"]["target"]
    assert metric["pods"]["metric"]["name"] == METRIC
    assert target == {"type": "AverageValue", "averageValue": "40"}  # 0.8 × 50
    assert (spec["minReplicas"], spec["maxReplicas"]) == (3, 6)


def test_the_uncertainty_of_engines_leaves_room_above(documents):
    found = by_kind(documents("k8s", one_pool(replica_count_range=[3, 9])))

    assert found["HorizontalPodAutoscaler"]["spec"]["maxReplicas"] == 9


def test_its_behavior_is_that_of_the_simulated_one(manifests):
    behavior = manifests["HorizontalPodAutoscaler"]["spec"]["behavior"]

    up, down = behavior["scaleUp"], behavior["scaleDown"]
    assert up["stabilizationWindowSeconds"] == DEFAULT.up_window_s
    assert down["stabilizationWindowSeconds"] == DEFAULT.down_window_s
    assert {x["type"]: x["value"] for x in up["policies"]} == {
        "Pods": DEFAULT.up_pods,
        "Percent": DEFAULT.up_percent,
    }
    assert {x["type"]: x["value"] for x in down["policies"]} == {
        "Percent": DEFAULT.down_percent
    }


def test_without_a_measured_load_there_is_no_autoscaler(documents):
    found = documents("k8s", one_pool() | {"replica_load": None})

    assert "HorizontalPodAutoscaler" not in by_kind(found)
    assert len(found) == 3  # and no rule for its metric


def test_selectors_find_the_pods(manifests):
    labels = manifests["Deployment"]["spec"]["template"]["metadata"]["labels"]

    deployment = manifests["Deployment"]["spec"]["selector"]["matchLabels"]
    budget = manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]
    assert deployment == budget == manifests["Service"]["spec"]["selector"] == labels


def test_gpus_are_asked_for_and_their_nodes_tolerated(manifests):
    pod = manifests["Deployment"]["spec"]["template"]["spec"]

    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {GPU: "4"}
    assert pod["tolerations"][0]["key"] == GPU
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    (volume,) = pod["volumes"]
    (mount,) = container["volumeMounts"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], "/dev/shm")
    assert volume["emptyDir"]["medium"] == "Memory"


def test_the_adapter_names_the_metric_that_the_autoscaler_reads(documents):
    (adapter,) = [x for x in documents("k8s") if "rules" in x]

    (rule,) = adapter["rules"]["custom"]
    assert rule["name"] == {"as": METRIC}
    names = set(re.findall(r"vllm:\w+", rule["metricsQuery"]))
    assert names == {"vllm:num_requests_running", "vllm:num_requests_waiting"}


@pytest.mark.parametrize("value", [0.001, 0.5, 1.0, 9.99, 10.0, 10.5, 98.9, 12345.6])
def test_a_quantity_is_never_above_its_value_nor_far_below(value):
    text = quantity(value)

    read = int(text[:-1]) / 1000 if text.endswith("m") else int(text)
    assert read <= value
    assert read > 0.9 * value
