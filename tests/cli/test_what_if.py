"""``capplan what-if`` and ``plan --llm A,B``: flags, files, wrong input."""

import json

import pytest

from capplan.cli.main import exit_code

pytestmark = pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")

SCENARIO = """\
workload: "synthetic:prompt=300,output=lognormal(median=80,sigma=0.6),n=1500"
rate: 4
llm: Llama-3.1-8B
gpu: H100-SXM
tp: 1
slo: {ttft: 1s, tpot: 40ms}
vary: {rate: [x1, x2], attainment: [0.9, 0.99]}
"""


@pytest.fixture(name="scenario")
def scenario_of(tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    return str(path)


def test_a_scenario_varies_what_it_lists_and_flags_win(scenario, tmp_path, capsys):
    out = tmp_path / "out"

    flags = ["--rate", "x0.5", "--slo-scale", "1,2", "--out", str(out)]
    code = exit_code(["what-if", scenario, *flags])

    document = json.loads((out / "whatif.json").read_text())
    assert code == 0
    assert document["vary"] == {
        "rate": ["x0.5"],
        "attainment": ["0.9", "0.99"],
        "slo_scale": ["1", "2"],
    }
    assert [cell["rate_per_s"] for cell in document["cells"]] == pytest.approx(
        [2.0] * 4
    )
    assert {cell["settings"]["rate"] for cell in document["cells"]} == {2.0}
    shown = capsys.readouterr().out
    (usd,) = {f"${cell['usd_per_month']:,.0f}" for cell in document["cells"]}
    assert shown.startswith(f"{usd} a month in each of 4 plans.\n")
    for name in ("whatif.csv", "report.html", "report.md"):
        assert (out / name).stat().st_size > 200


def test_the_scenario_of_a_plan_serves_too(scenario, tmp_path, capsys):
    path = tmp_path / "plan.yaml"
    path.write_text(SCENARIO.replace("vary:", "#"))

    code = exit_code(["what-if", str(path), "--vary", "attainment=0.9", "--json"])

    (cell,) = json.loads(capsys.readouterr().out)["cells"]
    assert code == 0
    assert cell["attainment"] == 0.9
    assert cell["gpu_count"] == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--rate", ""], "vary: rate has no values"),
        (["--rate", "x1,x-1"], "rate x-1: expected requests/s such as 34"),
        (["--rate", "0"], "rate 0: expected"),
        (["--attainment", "1.1"], "attainment 1.1: attainment is 1.1; expected less"),
        (["--slo-scale", "0"], "slo-scale 0: expected a number above 0"),
        (["--llm", "Llama-3.1-8B,Lama-9"], "Lama-9"),
        (["--vary", "colour=red"], "colour is not varied"),
        (["--xlsx"], "xlsx is of one plan; leave it out"),
        (["--draws", "5"], "draws is of one plan; leave it out"),
        (["--mix"], "mix is of one plan; leave it out"),
        (["--max-cells", "3"], "4 plans; expected at most 3"),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(
    scenario, tmp_path, capsys, flags, said
):
    out = tmp_path / "out"

    code = exit_code(["what-if", scenario, *flags, "--out", str(out)])

    (line,) = capsys.readouterr().err.strip().splitlines()
    assert code == 2
    assert said in line
    assert not out.exists() or not list(out.iterdir())


def test_nothing_feasible_is_an_answer(scenario, capsys):
    code = exit_code(["what-if", scenario, "--rate", "x1", "--slo-scale", "0.01"])

    assert code == 3
    assert "None of 2 plans holds." in capsys.readouterr().out


def test_a_plan_of_several_llms_writes_each_and_all_side_by_side(
    scenario, tmp_path, capsys
):
    path, out = tmp_path / "plan.yaml", tmp_path / "out"
    llms = "llm: [Llama-3.1-8B, Qwen3-8B]"
    text = SCENARIO.replace("llm: Llama-3.1-8B", llms)
    path.write_text(text.replace("vary:", "#"))

    code = exit_code(["plan", str(path), "--out", str(out), "--explain"])
    verified = exit_code(["verify", str(out / "Qwen3-8B" / "plan.json")])

    assert (code, verified) == (0, 0)
    cells = json.loads((out / "whatif.json").read_text())["cells"]
    for cell in cells:
        own = json.loads((out / cell["llm"] / "plan.json").read_text())
        assert own["llm"] == cell["llm"]
        assert own["best"]["usd_per_month"] == cell["usd_per_month"]
        assert cell["usd_per_request"] > 0
        assert cell["usd_per_million_input_tokens"] > 0
        assert cell["usd_per_million_output_tokens"] > 0
    shown = capsys.readouterr().out
    (usd,) = {f"${cell['usd_per_month']:,.0f}" for cell in cells}
    title, about, *_ = shown.splitlines()
    assert title == f"{usd} a month in each of 2 plans."
    assert about.startswith("Llama-3.1-8B, Qwen3-8B · ")
    assert "$ per request" in shown


def test_an_unknown_llm_of_several_is_refused_before_a_plan(scenario, tmp_path, capsys):
    path, out = tmp_path / "plan.yaml", tmp_path / "out"
    path.write_text(SCENARIO.replace("vary:", "#"))

    flags = ["--llm", "Llama-3.1-8B,Lama-9", "--out", str(out)]
    code = exit_code(["plan", str(path), *flags])

    assert code == 2
    assert "Lama-9" in capsys.readouterr().err
    assert not any(path.is_file() for path in out.rglob("*"))
