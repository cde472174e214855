"""A Compose file by Compose's own reader, which needs no daemon."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.report.exports.plans import one_pool
from tests.report.exports.pods import misspelt


@pytest.fixture
def config(tmp_path):
    """Run ``docker-compose config`` on a document."""
    beside = Path(sys.executable).with_name("docker-compose")
    found = str(beside) if beside.exists() else shutil.which("docker-compose")
    if found is None:
        pytest.skip("docker-compose is not installed here")

    def run(document):
        path = tmp_path / "compose.yaml"
        path.write_text(yaml.safe_dump(document))
        command = [found, "-f", str(path), "config", "--quiet"]
        return subprocess.run(command, capture_output=True, text=True)

    return run


def test_compose_reads_the_file(config, documents):
    (document,) = documents("compose")

    done = config(document)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("key", "wrong"),
    [("device_ids", "devise_ids"), ("stop_grace_period", "stop_grace"), ("ipc", "icp")],
)
def test_compose_refuses_a_misspelt_field(key, wrong, config, documents):
    (document,) = documents("compose")

    done = config(misspelt(document, key, wrong))

    assert done.returncode != 0
    assert wrong in done.stderr


def test_a_host_has_the_replicas_that_fit_and_each_its_own_gpus(documents):
    (document,) = documents("compose")  # 3 replicas of TP 4, nodes of 8

    services = document["services"]
    gpus = [
        service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
        for service in services.values()
    ]
    assert gpus == [["0", "1", "2", "3"], ["4", "5", "6", "7"]]
    assert [x["ports"] for x in services.values()] == [["8000:8000"], ["8001:8000"]]
    assert services["vllm-0"]["healthcheck"]["start_period"] == "480s"
    assert services["vllm-0"]["stop_grace_period"] == "53s"


@pytest.mark.parametrize(
    ("gpus_per_node", "count", "services", "said"),
    [
        (8, 3, 2, "start it on 2 with 8 H100-SXM each; on the last one 1 of its 2"),
        (8, 4, 2, "start it on 2 with 8 H100-SXM each"),
        (4, 3, 1, "start it on 3 with 4 H100-SXM each"),
        (None, 3, 1, "start it on 3 with 4 H100-SXM each"),
        (16, 3, 3, "start it on 1 with 12 H100-SXM each"),
    ],
)
def test_the_file_says_on_how_many_hosts(
    gpus_per_node, count, services, said, tmp_path
):
    from capplan.report.exports import exported
    from tests.report.exports.plans import written

    price = {"gpus_per_node": gpus_per_node}
    path = written(one_pool(price=price, replica_count=count), tmp_path)

    texts, export = exported(path, "compose")

    assert said in export.lacks[0]
    assert len(yaml.safe_load(texts["compose.yaml"])["services"]) == services
    assert export.lacks[0].count("last one") == (said.count("last one"))
