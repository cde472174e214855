import pytest

from capplan.errors import InputError
from capplan.fleet.catalog import gpu, gpu_names


@pytest.mark.parametrize("name", gpu_names())
def test_every_gpu_of_the_catalog_names_its_source(name):
    found = gpu(name)

    assert found.source
    assert found.confidence in ("high", "medium", "low")


@pytest.mark.parametrize("name", gpu_names())
def test_a_conflict_between_sources_is_said_and_lowers_the_confidence(name):
    found = gpu(name)

    if "CONFLICT" in found.note:
        assert found.confidence == "low"


def test_memory_is_what_the_driver_shows_where_that_is_known():
    names = ("L40S", "RTX4090", "GB200", "GB300", "B300", "H20", "L20", "RTX3090")
    shown = {name: gpu(name).memory_bytes for name in names}

    assert shown == {
        "L40S": 46068 * 2**20,
        "RTX4090": 25_250_627_584,
        "GB200": 189_471 * 2**20,
        "GB300": 284_208 * 2**20,
        "B300": 275_040 * 2**20,
        "H20": 97_871 * 2**20,
        "L20": 46_068 * 2**20,
        "RTX3090": 24_259 * 2**20,
    }


def test_flops_are_dense_and_nvlink_is_one_direction():
    # NVIDIA H100 SXM data sheet: 1,979 TFLOPS BF16 and 3,958 FP8 with sparsity,
    # half of it dense; NVLink 900 GB/s in both directions together.
    h100 = gpu("H100-SXM")

    assert h100.bf16_flops == pytest.approx(1979e12 / 2, rel=1e-3)
    assert h100.fp8_flops == pytest.approx(3958e12 / 2, rel=1e-3)
    assert h100.nvlink_bytes_per_s_per_direction == 450e9


def test_chips_for_china_differ_from_theirs_in_what_was_cut():
    h20, h800, a800 = gpu("H20"), gpu("H800"), gpu("A800")

    assert (h20.bandwidth_bytes_per_s, h20.bf16_flops) == (4e12, 148e12)
    for cut, whole in ((h800, gpu("H100")), (a800, gpu("A100"))):
        assert cut.nvlink_bytes_per_s_per_direction == 200e9
        assert cut.distance(whole) == (0, 0.0)


def test_rates_of_geforce_are_those_with_fp32_accumulation():
    """Of RTX 5090 3,352 TFLOP/s FP4 with sparsity: half of it dense, 16 bits an 8th."""
    rtx5090 = gpu("RTX5090")

    assert rtx5090.fp4_flops == 3352e12 / 2
    assert rtx5090.fp4_flops / rtx5090.fp8_flops == pytest.approx(4, rel=1e-3)
    assert rtx5090.fp4_flops / rtx5090.bf16_flops == pytest.approx(8, rel=1e-3)


def test_an_all_reduce_over_pcie_takes_the_rate_of_as_many_gpus_or_more():
    l40s, l4 = gpu("L40S"), gpu("L4")

    assert [l40s.pcie_bytes_per_s(tp) for tp in (2, 3, 8, 16)] == [
        19e9,
        3.7e9,
        2e9,
        2e9,
    ]
    assert l4.pcie_bytes_per_s(4) == l40s.pcie_bytes_per_s(4)


def test_every_measured_all_reduce_is_of_a_gpu_without_nvlink():
    measured = [gpu(name) for name in gpu_names() if gpu(name).all_reduce_bytes_per_s]

    assert measured
    assert not any(found.nvlink_bytes_per_s_per_direction for found in measured)


def test_a_gpu_has_no_rate_for_a_dtype_its_hardware_lacks():
    v100, a100 = gpu("V100"), gpu("A100")

    assert v100.bf16_flops is None
    assert v100.fp16_flops == 125e12
    assert a100.fp8_flops is None


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("H100", "H100-SXM"),
        ("h100_sxm", "H100-SXM"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("a100_sxm", "A100-80GB-SXM"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB-SXM"),
        ("A100-40GB", "A100-40GB-SXM"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("Tesla V100-SXM2-32GB", "V100-32GB-SXM2"),
        ("rtx a6000", "RTX-A6000"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA H800", "H800-SXM"),
        ("NVIDIA A800-SXM4-80GB", "A800-80GB-SXM"),
        ("NVIDIA GeForce RTX 5090", "RTX5090"),
        ("NVIDIA GeForce RTX 3090", "RTX3090"),
        ("Tesla T4", "T4"),
        ("DGX Spark", "GB10"),
        ("AMD Instinct MI350X", "MI350X"),
    ],
)
def test_a_gpu_is_found_by_the_names_people_write(written, name):
    assert gpu(written).name == name


@pytest.mark.parametrize("name", gpu_names())
def test_every_name_of_the_catalog_finds_itself_in_any_case(name):
    assert gpu(name).name == gpu(name.lower()).name == gpu(name.upper()).name == name


def test_an_unknown_gpu_is_refused_with_the_nearest_names():
    with pytest.raises(InputError, match=r"unknown GPU 'H101'.*H100-SXM"):
        gpu("H101")


def test_a_name_like_no_other_is_refused_with_all_names():
    with pytest.raises(InputError, match=r"did you mean A100-40GB-SXM.*RTX-A6000"):
        gpu("¿")


@pytest.mark.parametrize("name", gpu_names())
def test_the_values_of_the_catalog_are_those_of_hardware(name):
    found = gpu(name)

    positive = ("memory_bytes", "bandwidth_bytes_per_s", "max_gpus_per_node", "tdp_w")
    rates = [getattr(found, f"{form}_flops") for form in ("fp16", "bf16", "fp8", "fp4")]
    assert min(getattr(found, field) for field in positive) > 0
    assert min(rate for rate in rates if rate is not None) > 0
    assert found.nvlink_bytes_per_s_per_direction >= 0
    assert found.confidence in ("high", "medium", "low")


@pytest.mark.parametrize("name", gpu_names())
def test_the_distance_of_data_sheets_is_symmetric_and_none_from_itself(name):
    for other in gpu_names():
        assert gpu(name).distance(gpu(other)) == gpu(other).distance(gpu(name))

    assert gpu(name).distance(gpu(name)) == (0, 0.0)


def test_architecture_goes_before_bandwidth_and_arithmetic():
    def nearest(name, *others):
        return min(others, key=lambda other: gpu(name).distance(gpu(other)))

    assert nearest("L4", "L40S", "A10G") == "L40S"
    assert nearest("B200", "H200", "GB200") == "GB200"
    assert nearest("L40S", "A100", "H100") == "H100"
