import json
import random
import zipfile
from contextlib import suppress

import pytest

from capplan.errors import InputError, PriceWarning
from capplan.fleet.catalog import gpu
from capplan.fleet.offers_file import read_offers
from capplan.fleet.prices import catalog_offers

SKYPILOT = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,Price,Region,SpotPrice\n"
)
GPUHUNT = (
    "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,"
    "disk_size\n"
)
KUBECOST = (
    "EndTimestamp,InstanceID,Region,AssetClass,InstanceIDField,InstanceType,"
    "MarketPriceHourly,Version\n"
)


def read(tmp_path, text, name="prices.csv"):
    path = tmp_path / name
    path.write_text(text)
    return read_offers(path, lambda text: gpu(text).name, catalog_offers())


def test_skypilot_prices_a_machine_on_demand_and_spot(tmp_path):
    found = read(
        tmp_path,
        SKYPILOT + "gpu-h100-sxm_8gpu,H100,8,128,23.60,eu-north1,10.00\n"
        "cpu-d3,,0,4,0.1,eu-north1,\n",
    )

    assert [(o.kind, o.usd_per_node_h, o.region) for o in found] == [
        ("on-demand", 23.6, "eu-north1"),
        ("spot", 10.0, "eu-north1"),
    ]
    assert {(o.gpu, o.gpus_per_node, o.node) for o in found} == {
        ("H100-SXM", 8, "gpu-h100-sxm_8gpu")
    }


def test_a_google_machine_is_its_host_and_its_gpus(tmp_path):
    (found,) = read(
        tmp_path,
        SKYPILOT + "a3-highgpu-8g,H100,8,208,9.46,us-central1,\n"
        ",H100,8,,78.34,us-central1,\n",
    )

    assert found.usd_per_node_h == pytest.approx(87.80)


def test_a_google_host_without_its_gpus_is_refused(tmp_path):
    with pytest.raises(InputError, match="a3-highgpu-8g is priced without its GPUs"):
        read(tmp_path, SKYPILOT + "a3-highgpu-8g,H100,8,208,9.46,us-central1,\n")


def test_a_placeholder_of_skypilot_is_no_price(tmp_path):
    (found,) = read(tmp_path, SKYPILOT + "one,H100,1,8,700.0,a,\ntwo,H100,1,8,3.5,a,\n")

    assert found.node == "two"


def test_the_a100_of_skypilot_has_40_gb(tmp_path):
    found = read(tmp_path, SKYPILOT + "one,A100,8,8,20,a,\ntwo,A100-80GB,8,8,25,a,\n")

    assert [o.gpu for o in found] == ["A100-40GB-SXM", "A100-80GB-SXM"]


def test_gpus_in_no_catalog_are_left_out_and_named(tmp_path):
    with pytest.warns(PriceWarning, match="1 prices of GPUs in no catalog.*K80"):
        (found,) = read(tmp_path, SKYPILOT + "one,K80,1,8,1,a,\ntwo,L4,1,8,1,a,\n")

    assert found.gpu == "L4"


def test_a_file_without_a_known_gpu_is_refused(tmp_path):
    with pytest.raises(InputError, match="no price of a GPU in the catalog"):
        read(tmp_path, SKYPILOT + "one,K80,1,8,1,a,\n")


def test_gpuhunt_tells_gpus_apart_by_their_memory(tmp_path):
    found = read(
        tmp_path,
        GPUHUNT + "a,eu,10.0,96,1000,8,A100,40.0,False,\n"
        "b,eu,12.0,96,1000,8,A100,80.0,True,\nc,eu,0.1,2,8,0,,,False,\n",
    )

    assert [(o.gpu, o.kind, o.usd_per_gpu_h) for o in found] == [
        ("A100-40GB-SXM", "on-demand", 1.25),
        ("A100-80GB-SXM", "spot", 1.5),
    ]


def test_the_catalog_of_gpuhunt_is_read_zipped_by_provider(tmp_path):
    path = tmp_path / "catalog.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for provider, usd in (("runpod", 3.0), ("nebius", 2.0)):
            row = f"x,eu,{usd},8,100,1,H100,80.0,False,\n"
            archive.writestr(f"{provider}.csv", GPUHUNT + row)

    found = read_offers(path, lambda text: gpu(text).name)

    assert [(o.provider, o.usd_per_gpu_h) for o in found] == [
        ("runpod", 3.0),
        ("nebius", 2.0),
    ]


def azure(**more):
    return {
        "armSkuName": "Standard_ND96isr_H100_v5",
        "armRegionName": "eastus",
        "meterName": "ND96isr H100 v5",
        "productName": "Virtual Machines NDv5 Series",
        "currencyCode": "USD",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "retailPrice": 98.32,
        "effectiveStartDate": "2026-01-01T00:00:00Z",
        **more,
    }


def test_a_reservation_of_azure_is_of_its_whole_term(tmp_path):
    items = [
        azure(),
        azure(type="Reservation", reservationTerm="3 Years", retailPrice=1_051_200.0),
        azure(meterName="ND96isr H100 v5 Spot", retailPrice=40.0),
        azure(productName="Virtual Machines NDv5 Series Windows", retailPrice=103.0),
        azure(armSkuName="Standard_D2s_v5", retailPrice=0.1),
    ]

    found = read(tmp_path, json.dumps({"Items": items}), "azure.json")

    assert [(o.kind_and_term, o.usd_per_node_h) for o in found] == [
        ("on-demand", 98.32),
        ("reserved, 36 months", pytest.approx(40.0)),  # 1,051,200 over 26,280 hours
        ("spot", 40.0),
    ]


def test_azures_unit_of_100_hours_is_not_one_hour(tmp_path):
    items = [azure(unitOfMeasure="100 Hours", retailPrice=9832.0)]

    (found,) = read(tmp_path, json.dumps({"Items": items}), "azure.json")

    assert found.usd_per_node_h == pytest.approx(98.32)


@pytest.mark.parametrize(
    "item",
    [
        azure(unitOfMeasure="1/Month"),
        azure(unitOfMeasure="0 Hours"),
        azure(type="Reservation", reservationTerm="1 Year", unitOfMeasure="100 Hours"),
    ],
)
def test_a_unit_of_azure_that_is_not_known_is_refused_by_name(tmp_path, item):
    with pytest.raises(InputError, match=r":1: unitOfMeasure is '(1/Month|\d+ Hours)'"):
        read(tmp_path, json.dumps({"Items": [item]}), "azure.json")


def test_json_of_something_else_is_refused(tmp_path):
    with pytest.raises(InputError, match="no answer of Azure's retail prices"):
        read(tmp_path, '{"Items": [{"price": 1}]}', "azure.json")


def test_kubecost_prices_gpus_beside_their_node(tmp_path):
    (found,) = read(
        tmp_path,
        KUBECOST + ",a,us-east-1,node,spec.providerID,p5.48xlarge,5.04,\n"
        ",H100,us-east-1,gpu,gpu.nvidia.com/class,,6.25,\n"
        ",b,us-east-1,node,spec.providerID,m5.large,0.1,\n",
    )

    assert (found.provider, found.usd_per_node_h) == ("AWS", 55.04)


def test_kubecost_prices_each_gpu_of_a_region_by_its_label(tmp_path):
    found = read(
        tmp_path,
        KUBECOST + ",a,us-east-1,node,spec.providerID,p5.48xlarge,5.04,\n"
        ",b,us-east-1,node,spec.providerID,g6.12xlarge,1.0,\n"
        ",NVIDIA-H100-80GB-HBM3,us-east-1,gpu,gpu.nvidia.com/class,,6.25,\n"
        ",NVIDIA-L4,us-east-1,gpu,gpu.nvidia.com/class,,0.9,\n",
    )

    assert [(o.node, o.usd_per_node_h) for o in found] == [
        ("p5.48xlarge", pytest.approx(5.04 + 8 * 6.25)),
        ("g6.12xlarge", pytest.approx(1.0 + 4 * 0.9)),
    ]


FILES = {
    "skypilot.csv": SKYPILOT + "a3-highgpu-8g,H100,8,208,9.46,u,\n,H100,8,,78,u,\n",
    "gpuhunt.csv": GPUHUNT + "a,eu,10.0,96,1000,8,A100,40.0,False,\n",
    "kubecost.csv": KUBECOST + ",a,u,node,x,p5.48xlarge,5.04,\n,H100,u,gpu,y,,6.2,\n",
    "azure.json": json.dumps(
        {"Items": [azure(type="Reservation", reservationTerm="1 Year")]}
    ),
    "own.csv": "node,kind,usd_per_node_h,term_months\np5.48xlarge,reserved,-38%,12\n",
    "own.yaml": "H100: {usd_per_gpu_h: 3, as_of: 2026-11-01, kind: spot}\nL4: 0.5\n",
}
PIECES = [
    "",
    "-1",
    "nan",
    "1e400",
    "-38%",
    "x9",
    "\x00",
    '"',
    ",",
    "\n",
    "null",
    "[",
    "=",
]


@pytest.mark.filterwarnings("ignore::capplan.errors.PriceWarning")
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_read_or_refused_in_a_line(name, tmp_path):
    rng = random.Random(name)
    for _ in range(100):
        text = FILES[name]
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(PIECES) + text[at + rng.choice([0, 1, 4]) :]

        with suppress(InputError):
            found = read(tmp_path, text, name)
            assert all(offer.usd_per_gpu_h > 0 for offer in found)
