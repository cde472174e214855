"""What real engines served is predicted from half of it."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "studies" / "served_runs.py"


def example():
    spec = importlib.util.spec_from_file_location("served_runs", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_says_where_it_looked_for_runs(monkeypatch, tmp_path, capsys):
    module = example()
    monkeypatch.setattr(module, "RUNS", tmp_path / "absent")
    monkeypatch.setattr("sys.argv", ["served_runs.py"])

    module.main()

    assert f"No runs in {tmp_path / 'absent'}" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rtx4090_llama-3.1-8b", "rtxpro6000_llama-3.1-8b"])
def test_the_second_half_of_a_served_run_is_predicted_from_the_first(name):
    module = example()
    folder = module.RUNS / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent; the runs there are not shipped")
    run, engine = module.read_run(folder), module.read_limits(folder)
    half = len(run.arrival_s) // 2

    found = module.calibrate(run, engine, rows=np.arange(half))

    rest = slice(half, None)
    for column in ("ttft_s", "tpot_s", "e2e_s"):
        measured = getattr(run, column)[rest].mean()
        assert getattr(found.times, column)[rest].mean() == pytest.approx(
            measured, rel=0.03
        )
