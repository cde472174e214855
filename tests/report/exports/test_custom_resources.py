"""LeaderWorkerSet, KServe, llm-d and Dynamo against their published schemas."""

import pytest

from capplan.errors import InputError
from capplan.report.exports import exported
from tests.report.exports.plans import one_pool, two_pools, written
from tests.report.exports.pods import misspelt, validate_pods, values_of
from tests.report.exports.reference import broken_rules, crd_schema, errors, json_schema

BOTH = pytest.mark.parametrize("plan", [one_pool, two_pools])

CHART_KEYS = {
    "": {"multinode", "modelArtifacts", "accelerator", "routing", "decode", "prefill"},
    "modelArtifacts": {"name", "labels", "uri", "size", "authSecretName", "mountPath"},
    "accelerator": {"type", "dra", "resources", "env", "resourceClaimTemplates"},
    "routing": {"servicePort", "proxy"},
    "routing.proxy": {"enabled", "image", "targetPort", "connector", "secure"},
    "decode": {
        *("create", "autoscaling", "replicas", "nodeSelector", "parallelism"),
        *("resourceClaims", "containers", "volumes", "initContainers", "monitoring"),
        *("acceleratorTypes", "terminationGracePeriodSeconds", "enableServiceLinks"),
        *("extraConfig", "tolerations", "annotations", "strategy", "podAnnotations"),
    },
    "decode.parallelism": {"tensor", "data", "dataLocal", "workers"},
    "decode.containers": {
        *("name", "image", "modelCommand", "command", "args", "env", "resources"),
        *("ports", "imagePullPolicy", "mountModelVolume", "volumeMounts"),
        "extraConfig",
    },
}
"""Keys that llm-d-modelservice v0.4.12 (3051935) reads: values.yaml and templates."""

COMPONENT_KEYS = {"name", "type", "replicas", "podTemplate"}
"""Keys of a component in dynamo/profiler/templates/dgd/vllm of ai-dynamo 1.6.1."""


def unknown_keys(values):
    """Return keys of values that the chart does not read."""
    found = []
    parts = {"": values}
    for name in ("modelArtifacts", "accelerator", "routing"):
        parts[name] = values.get(name, {})
    parts["routing.proxy"] = parts["routing"].get("proxy", {})
    for role in ("decode", "prefill"):
        pool = values.get(role, {})
        parts[f"{role}"] = pool
        parts[f"{role}.parallelism"] = pool.get("parallelism", {})
        for container in pool.get("containers", []):
            parts[f"{role}.containers"] = container
    for where, part in parts.items():
        known = CHART_KEYS[where.replace("prefill", "decode")]
        found += [f"{where}.{key}" for key in part if key not in known]
    return found


def test_a_leader_worker_set_is_as_its_definition_says(documents):
    schema = crd_schema("lws", "v1")

    workload = documents("lws")[0]

    assert errors(schema, workload) == []


@pytest.mark.parametrize(
    ("key", "wrong"),
    [("size", "sizes"), ("workerTemplate", "worker"), ("resources", "resource")],
)
def test_its_definition_refuses_a_misspelt_field(key, wrong, documents):
    schema = crd_schema("lws", "v1")

    assert errors(schema, misspelt(documents("lws")[0], key, wrong))


def test_a_replica_on_one_node_is_a_group_of_one_pod(documents):
    workload, service, scaler, budget, _ = documents("lws")

    groups = workload["spec"]["leaderWorkerTemplate"]
    assert (workload["spec"]["replicas"], groups["size"]) == (3, 1)
    assert "leaderTemplate" not in groups
    assert service["spec"]["selector"].items() > (
        groups["workerTemplate"]["metadata"]["labels"].items()
    )
    assert scaler["spec"]["scaleTargetRef"]["kind"] == "LeaderWorkerSet"
    assert budget["spec"]["maxUnavailable"] == 1


def test_a_replica_across_nodes_names_its_leader_to_vllm(documents):
    plan = one_pool(price={"gpus_per_node": 2})  # TP 4 on 2 nodes

    workload = documents("lws", plan)[0]

    groups = workload["spec"]["leaderWorkerTemplate"]
    leader = groups["leaderTemplate"]["spec"]["containers"][0]
    worker = groups["workerTemplate"]["spec"]["containers"][0]
    assert groups["size"] == 2
    assert leader["resources"]["limits"] == worker["resources"]["limits"]
    assert leader["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    across = ["--nnodes", "$(LWS_GROUP_SIZE)", "--node-rank", "$(LWS_WORKER_INDEX)"]
    across += ["--master-addr", "$(LWS_LEADER_ADDRESS)"]
    assert leader["args"][-6:] == across
    assert worker["args"] == [*leader["args"], "--headless"]
    assert "startupProbe" in leader
    assert "startupProbe" not in worker
    assert errors(crd_schema("lws", "v1"), workload) == []


def test_a_tp_that_nodes_do_not_divide_is_refused(tmp_path):
    path = written(one_pool(price={"gpus_per_node": 3}), tmp_path)

    assert exported(path, "lws")  # 4 GPUs on two nodes, two on each

    with pytest.raises(InputError, match="8 GPUs on 3 nodes"):
        exported(written(three_nodes(), tmp_path), "lws")


def three_nodes():
    plan = one_pool(price={"gpus_per_node": 3})
    plan["best"]["tp"] = 8
    line = plan["best"]["launch_line"]
    plan["best"]["launch_line"] = line.replace("-size 4 ", "-size 8 ")
    return plan


@BOTH
@pytest.mark.parametrize("target", ["lws", "kserve", "dynamo"])
def test_pods_of_custom_resources_are_pods(target, plan, documents):
    if target == "lws" and plan is two_pools:
        pytest.skip("has no proxy for two pools")

    found = documents(target, plan())

    pods = [x for x in values_of("spec", found[0]) if "containers" in x]
    pods += [x for x in values_of("template", found[0]) if "containers" in x]
    assert pods
    for pod in pods:
        for each in pod["containers"]:
            each.setdefault("image", "x")  # of KServe's preset
    validate_pods(*pods)


@BOTH
def test_an_inference_service_is_as_its_definition_says(plan, documents):
    schema = crd_schema("llmisvc", "v1alpha2")

    (service,) = documents("kserve", plan())

    assert errors(schema, service) == []
    assert broken_rules(service["spec"]) == []


@pytest.mark.parametrize(
    ("key", "wrong"),
    [("tensor", "tensors"), ("scaling", "scale"), ("uri", "url"), ("triggers", "x")],
)
def test_the_definition_of_services_refuses_a_misspelt_field(key, wrong, documents):
    schema = crd_schema("llmisvc", "v1alpha2")

    (service,) = documents("kserve")

    assert errors(schema, misspelt(service, key, wrong))


def test_a_service_scales_by_the_requests_in_flight(documents):
    (service,) = documents("kserve")

    scaling = service["spec"]["scaling"]
    (trigger,) = scaling["keda"]["triggers"]
    assert (scaling["minReplicas"], scaling["maxReplicas"]) == (3, 6)
    assert float(trigger["metadata"]["threshold"]) == 40  # 0.8 × 50
    assert "num_requests_waiting" in trigger["metadata"]["query"]


def test_a_service_of_two_pools_has_the_counts_of_the_plan(documents, apart):
    (service,) = documents("kserve", apart)

    spec = service["spec"]
    assert (spec["replicas"], spec["parallelism"]["tensor"]) == (2, 2)
    assert spec["prefill"]["replicas"] == 3
    assert spec["prefill"]["parallelism"]["tensor"] == 1


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"replicas": 1, "scaling": {"maxReplicas": 2, "wva": {}}}, "exclusive"),
        ({"scaling": {"maxReplicas": 2}}, "one of wva and keda"),
        ({"scaling": {"maxReplicas": 2, "wva": {}, "keda": {"triggers": [1]}}}, "one"),
        ({"scaling": {"maxReplicas": 2, "keda": {"triggers": []}}}, "one trigger"),
        ({"scaling": {"minReplicas": 3, "maxReplicas": 2, "wva": {}}}, "exceed"),
        ({"prefill": {"scaling": {"maxReplicas": 2}}}, "spec.prefill.scaling"),
    ],
)
def test_the_rules_that_no_schema_states_are_kept(spec, said):
    (broken,) = broken_rules(spec)

    assert said in broken


@BOTH
def test_the_chart_of_llm_d_takes_the_values(plan, documents):
    (values,) = documents("llm-d", plan())

    assert unknown_keys(values) == []
    assert errors(json_schema("llmd_values"), values) == []


def test_a_key_that_the_chart_does_not_read_is_found_beside_its_schema(documents):
    (values,) = documents("llm-d")

    assert unknown_keys(misspelt(values, "replicas", "replica")) == ["decode.replica"]
    values["decode"]["replicas"] = "3"
    assert errors(json_schema("llmd_values"), values)


def test_values_of_llm_d_have_the_pools_and_room_for_the_checkpoint(documents, apart):
    (values,) = documents("llm-d", apart)

    assert values["prefill"]["replicas"] == 3
    assert values["decode"]["replicas"] == 2
    assert values["modelArtifacts"]["size"] == "120Gi"  # 1.2 × 100 GiB
    assert values["routing"]["proxy"]["enabled"] is True
    port = values["decode"]["containers"][0]["ports"][0]["containerPort"]
    assert port == values["routing"]["proxy"]["targetPort"]


@BOTH
def test_the_graph_of_dynamo_has_the_keys_of_its_own_templates(plan, documents):
    (graph,) = documents("dynamo", plan())

    assert (graph["apiVersion"], graph["kind"]) == (
        "nvidia.com/v1beta1",
        "DynamoGraphDeployment",
    )
    components = graph["spec"]["components"]
    assert [set(x) for x in components] == [COMPONENT_KEYS] * len(components)
    roles = {x["type"]: x["replicas"] for x in components}
    expected = {"worker": 3} if plan is one_pool else {"prefill": 3, "decode": 2}
    assert roles == {"frontend": 1, **expected}
    assert {x["name"] for part in values_of("containers", graph) for x in part} == {
        "main"
    }


def test_dynamos_workers_know_their_part(documents, apart):
    (graph,) = documents("dynamo", apart)

    by_type = {x["type"]: x for x in graph["spec"]["components"]}
    for role in ("prefill", "decode"):
        (args,) = values_of("args", by_type[role])
        assert args[-2:] == ["--disaggregation-mode", role]
