"""SkyPilot's own schemas, where it is installed."""

import pytest

from capplan.report.exports import exported
from tests.report.exports.plans import one_pool, written
from tests.report.exports.pods import misspelt


@pytest.fixture
def errors():
    """What SkyPilot's schemas say against a task."""
    pytest.importorskip("sky", reason="SkyPilot is not installed here")
    validators = pytest.importorskip("jsonschema")
    from sky.utils import schemas

    def against(schema, value):
        return [
            x.message for x in validators.Draft7Validator(schema).iter_errors(value)
        ]

    def run(task):
        return (
            against(schemas.get_task_schema(), task)
            + against(schemas.get_service_schema(), task["service"])
            + against(schemas.get_resources_schema(), task["resources"])
        )

    return run


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("load", ["measured", "not"])
def test_skypilot_takes_the_task(load, errors, documents):
    plan = one_pool() if load == "measured" else one_pool() | {"replica_load": None}

    (task,) = documents("skypilot", plan)

    assert errors(task) == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("key", "wrong"),
    [("min_replicas", "min_replica"), ("accelerators", "gpus"), ("secrets", "secret")],
)
def test_skypilot_refuses_a_misspelt_field(key, wrong, errors, documents):
    (task,) = documents("skypilot")

    assert errors(misspelt(task, key, wrong))


@pytest.mark.filterwarnings("ignore")
def test_skypilots_own_reader_takes_the_file(tmp_path):
    sky = pytest.importorskip("sky", reason="SkyPilot is not installed here")
    texts, _ = exported(written(one_pool(), tmp_path), "skypilot")
    path = tmp_path / "skypilot.yaml"
    path.write_text(texts["skypilot.yaml"])

    task = sky.Task.from_yaml(str(path))

    (resources,) = task.resources
    assert resources.accelerators == {"H100": 4}
    assert (task.service.min_replicas, task.service.max_replicas) == (3, 6)


def test_a_service_has_the_plans_replicas_and_target(documents):
    (task,) = documents("skypilot")

    assert task["service"]["replica_policy"] == {
        "min_replicas": 3,
        "max_replicas": 6,
        "target_qps_per_replica": 8.0,  # 0.8 × 10
    }
    assert task["service"]["readiness_probe"]["initial_delay_seconds"] == 480
    assert task["resources"]["accelerators"] == "H100:4"


@pytest.mark.parametrize(("rate_per_s", "wanted"), [(24.0, None), (24.1, 4), (80, 10)])
def test_a_target_that_asks_for_more_than_was_planned_is_said(
    rate_per_s, wanted, tmp_path
):
    plan = one_pool() | {"rate_per_s": rate_per_s}

    _, export = exported(written(plan, tmp_path), "skypilot")

    said = [x for x in export.lacks if "not 3" in x]
    assert len(said) == (wanted is not None)
    assert all(f"{wanted} replicas" in x for x in said)
