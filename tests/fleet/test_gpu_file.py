"""GPUs of one's own, in a YAML file."""

import json

import pytest
import yaml

import capplan
from capplan.calibration.settings import FitSettings
from capplan.cli.main import exit_code
from capplan.errors import InputError
from capplan.fleet.catalog import gpu, gpu_names
from capplan.fleet.gpu_file import GpuFileSettings, read_gpus
from capplan.planning.settings.plan import OffersSettings, PlanSettings
from capplan.settings import SettingError, Settings

H20 = {
    "name": "Own-96GB",
    "architecture": "Hopper",
    "memory_gib": 97871 / 1024,
    "bandwidth_gb_per_s": "4e3",
    "bf16_tflops": 148,
    "fp8_tflops": 296,
    "nvlink_gb_per_s": 450,
    "gpus_per_node": 8,
    "tdp_w": 400,
}
ASKED = {"input_len": "1000", "output_len": "100", "rate": 8, "tp": 1, "seed": 1}
ASKED |= {"llm": "Llama-3.1-8B", "slo": "ttft=2s,tpot=60ms"}


@pytest.fixture(autouse=True)
def _none_left():
    yield
    GpuFileSettings()


def write(path, *gpus):
    path.write_text(yaml.dump(list(gpus) if len(gpus) > 1 else gpus[0]))
    return str(path)


def test_a_file_has_one_gpu_or_a_list_of_them(tmp_path):
    other = H20 | {"name": "Old", "bf16_tflops": None, "fp16_tflops": 65}
    (one,) = read_gpus(tmp_path / write(tmp_path / "one.yaml", H20))
    two = read_gpus(tmp_path / write(tmp_path / "two.yaml", H20, other))

    own, known = one.gpu, gpu("H20")
    for name in ("memory_bytes", "bandwidth_bytes_per_s", "bf16_flops", "fp8_flops"):
        assert getattr(own, name) == getattr(known, name)
    assert own.distance(known) == (0, 0.0)
    assert two[1].gpu.bf16_flops is None
    assert two[1].gpu.fp16_flops == 65e12


@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
def test_a_gpu_of_ones_own_is_planned_as_the_catalogs_of_the_same_data_sheet(tmp_path):
    file = write(tmp_path / "own.yaml", H20 | {"usd_per_gpu_h": 1.9})

    known = capplan.plan(**ASKED, gpu="H20", price="H20=1.9/gpu")
    own = capplan.plan(**ASKED, gpu="own_96gb", gpu_file=file)

    assert own.best.gpu_count == known.best.gpu_count
    assert own.best.cost.usd_per_month == known.best.cost.usd_per_month > 0
    assert repr(own.best.run.judgement) == repr(known.best.run.judgement)


@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
def test_a_price_that_is_given_goes_before_the_files(tmp_path):
    file = write(tmp_path / "own.yaml", H20 | {"usd_per_gpu_h": 1.9})

    plan = capplan.plan(**ASKED, gpu="Own-96GB", gpu_file=file, price="own_96gb=1")

    assert plan.best.cost.usd_per_h == plan.best.gpu_count


def test_settings_without_the_file_do_not_know_its_gpus(tmp_path):
    PlanSettings(gpu_file=write(tmp_path / "own.yaml", H20))
    assert "Own-96GB" in gpu_names()

    PlanSettings()

    with pytest.raises(InputError, match=r"unknown GPU 'Own-96GB'.*--gpu-file"):
        gpu("Own-96GB")


def of_commands(model=Settings):
    return [
        model,
        *(found for sub in model.__subclasses__() for found in of_commands(sub)),
    ]


def test_every_command_that_takes_a_gpu_takes_a_file_of_them():
    models = [model for model in of_commands() if "gpu" in model.model_fields]

    assert {PlanSettings, OffersSettings, FitSettings} <= {*models}
    assert [m for m in models if "gpu_file" not in m.model_fields] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"memory_gib": None}, "Own-96GB: memory_gib is missing"),
        (
            {"bf16_tflops": None},
            r"bf16_tflops is missing \(without BF16: fp16_tflops\)",
        ),
        ({"memory_gib": 96e9}, "memory_gib is '96000000000.0'; expected .* to 4,096"),
        ({"bandwidth_gb_per_s": 4}, "bandwidth_gb_per_s is '4'; expected .* from 20"),
        ({"bf16_tflops": "fast"}, "bf16_tflops is 'fast'; expected a number"),
        ({"bf16_tflops": True}, "bf16_tflops is 'True'; expected a number"),
        ({"tdp_w": float("nan")}, "tdp_w is 'nan'; expected a number"),
        ({"gpus_per_node": 2.5}, "gpus_per_node is '2.5'; expected a whole number"),
        ({"usd_per_gpu_h": 0}, "usd_per_gpu_h is '0'"),
        (
            {"architecture": "Volga"},
            "architecture is 'Volga'; expected one of .*Volta",
        ),
        ({"name": "a/b"}, "name has other signs"),
        ({"name": "H100"}, "H100 is H100-SXM of the catalog; expected another name"),
        ({"memory": 96}, "'memory' is not a key; did you mean memory_gib"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_wrong_is_said_in_one_line(change, message, tmp_path):
    file = write(tmp_path / "own.yaml", H20 | change)

    with pytest.raises(SettingError, match=message) as error:
        PlanSettings(gpu_file=file)

    assert "\n" not in str(error.value)


def test_all_that_is_wrong_with_a_gpu_is_said_at_once(tmp_path):
    file = write(tmp_path / "own.yaml", {"name": "Mine", "tdp_w": -1})

    with pytest.raises(SettingError) as error:
        PlanSettings(gpu_file=file)

    for key in ("memory_gib", "bandwidth_gb_per_s", "gpus_per_node", "tdp_w is '-1'"):
        assert key in str(error.value)


@pytest.mark.parametrize(
    "text", ["", "5", "[]", "- 5\n", "a: [", "name: &x 1\nb: *x\n"]
)
def test_a_file_of_no_gpus_is_refused_by_the_flag(text, tmp_path, capsys):
    (tmp_path / "own.yaml").write_text(text)

    code = exit_code(["plan", "--gpu-file", str(tmp_path / "own.yaml")])

    error = capsys.readouterr().err
    assert code == 2
    assert error.count("\n") == 1
    assert "own.yaml" in error


def test_two_gpus_of_one_name_are_refused(tmp_path):
    file = write(tmp_path / "own.yaml", H20, H20 | {"name": "own_96gb"})

    with pytest.raises(SettingError, match="own_96gb is named twice"):
        PlanSettings(gpu_file=file)


@pytest.mark.filterwarnings("ignore")
def test_a_plan_with_the_file_is_verified_with_it(tmp_path, capsys):
    file = write(tmp_path / "own.yaml", H20)
    out = tmp_path / "out"
    capplan.plan(**ASKED, gpu="Own-96GB", gpu_file=file, out=str(out))

    assert json.loads((out / "plan.json").read_text())["settings"]["gpu_file"] == file
    assert exit_code(["verify", str(out / "plan.json")]) == 2
    assert "give --gpu-file" in capsys.readouterr().err
    assert exit_code(["verify", str(out / "plan.json"), "--gpu-file", file]) == 0
