"""Ray Serve's own schemas, where Ray is installed."""

import ast
from pathlib import Path

import pytest

from capplan.report.exports.gpu_names import all_gpu_names
from tests.report.exports.plans import one_pool, two_pools
from tests.report.exports.pods import misspelt

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def schema():
    """The schema of ``serve deploy``."""
    reason = "Ray Serve is not installed here"
    return pytest.importorskip("ray.serve.schema", reason=reason).ServeDeploySchema


@pytest.mark.parametrize("plan", [one_pool, two_pools])
def test_ray_serve_takes_the_configuration(plan, schema, documents):
    (document,) = documents("ray", plan())

    read = schema.model_validate(document)

    assert read.applications[0].name == document["applications"][0]["name"]


def fields_of(name):
    """Return the fields of a class of Ray's LLM configuration, by its source.

    Importing it takes ``ray[llm]``.
    """
    ray = pytest.importorskip("ray", reason="Ray is not installed here")
    source = Path(ray.__file__).parent / "llm/_internal/serve/core/configs"
    tree = ast.parse((source / "llm_config.py").read_text())
    (found,) = [x for x in ast.walk(tree) if getattr(x, "name", "") == name]
    return {x.target.id for x in found.body if isinstance(x, ast.AnnAssign)}


def unknown_keys(document):
    """Return keys that Ray does not read: its schemas let them pass."""
    from ray.serve.config import AutoscalingConfig
    from ray.serve.schema import DeploymentSchema, ServeApplicationSchema

    (application,) = document["applications"]
    args = application["args"]
    found = set(application) - set(ServeApplicationSchema.model_fields)
    found |= set(args) - {"llm_configs", "prefill_config", "decode_config"}
    for config in args.get("llm_configs") or args.values():
        deployment = config["deployment_config"]
        scaling = deployment.get("autoscaling_config", {})
        found |= set(config) - fields_of("LLMConfig")
        found |= set(config["model_loading_config"]) - fields_of("ModelLoadingConfig")
        found |= set(deployment) - set(DeploymentSchema.model_fields)
        found |= set(scaling) - set(AutoscalingConfig.model_fields)
    return found


@pytest.mark.parametrize("plan", [one_pool, two_pools])
def test_ray_reads_each_key(plan, schema, documents):
    (document,) = documents("ray", plan())

    assert unknown_keys(document) == set()


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("route_prefix", "route_prefixes"),
        ("model_id", "id"),
        ("accelerator_type", "accelerator"),
        ("max_ongoing_requests", "max_requests"),
        ("target_ongoing_requests", "target"),
    ],
)
def test_a_key_that_ray_does_not_read_is_found(key, wrong, schema, documents):
    (document,) = documents("ray")

    assert unknown_keys(misspelt(document, key, wrong)) == {wrong}


def test_ray_serve_refuses_a_misspelt_import_path(schema, documents):
    from pydantic import ValidationError

    (document,) = documents("ray")

    with pytest.raises(ValidationError):
        schema.model_validate(misspelt(document, "import_path", "import"))


def test_rays_autoscaler_has_the_targets(schema, documents):
    from ray.serve.config import AutoscalingConfig

    (document,) = documents("ray")
    config = document["applications"][0]["args"]["llm_configs"][0]
    given = config["deployment_config"]["autoscaling_config"]

    read = AutoscalingConfig(**given)

    assert (read.min_replicas, read.max_replicas) == (3, 6)
    assert read.target_ongoing_requests == 40  # 0.8 × 50


@pytest.mark.parametrize(("in_flight", "most"), [(50.0, 256), (1000.5, 801)])
def test_a_replica_takes_as_many_requests_as_the_target_needs(
    in_flight, most, documents
):
    load = {"rate_per_s": 10.0, "in_flight": in_flight, "replica_count": 3}

    (document,) = documents("ray", one_pool() | {"replica_load": load})

    config = document["applications"][0]["args"]["llm_configs"][0]
    assert config["deployment_config"]["max_ongoing_requests"] == most


def test_names_of_gpus_are_rays():
    pytest.importorskip("ray", reason="Ray is not installed here")
    from ray.util.accelerators import accelerators

    known = {value for value in vars(accelerators).values() if isinstance(value, str)}
    assert {
        names.ray for names in all_gpu_names().values() if names.ray
    } - known == set()


def test_a_pool_has_its_own_count_where_nothing_scales_it(documents, apart):
    (document,) = documents("ray", apart)

    args = document["applications"][0]["args"]
    counts = {
        name: config["deployment_config"]["num_replicas"]
        for name, config in args.items()
    }
    assert counts == {"prefill_config": 3, "decode_config": 2}
    assert args["decode_config"]["engine_kwargs"]["kv_transfer_config"] == {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_both",
    }
