"""A plan is verified as it was written, and no forged copy of it, sealed or not."""

import json
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from capplan.bounds.certificate import seal
from capplan.cli.main import exit_code
from capplan.errors import InputError
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings
from capplan.report.received import verify as verifying
from capplan.report.received.plan_document import read_plan
from capplan.report.received.verify import verify
from capplan.simulator.schedulers import own_file
from tests.documents import plan_json

COST = {"latency_ms": "9,0.04,0,0.08,0.00005", "kv_blocks": 1500}
SETTINGS = {
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "slo": "ttft=400ms,tpot=20ms",
    "price": "H100-SXM=2.79",
    **COST,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A plan of a trace with times of its own, and the trace beside it."""
    folder = tmp_path_factory.mktemp("plan")
    rows = [f"{k / 40:.3f},{50 + k % 97},{20 + k % 31}" for k in range(1200)]
    head = "arrival_s,prompt_tokens,output_tokens"
    (folder / "own.csv").write_text("\n".join([head, *rows]) + "\n")
    made = plan(PlanSettings(**SETTINGS, trace=folder / "own.csv"))
    (folder / "plan.json").write_text(plan_json(made))
    return folder


@pytest.fixture(scope="module")
def document(folder):
    return read_plan(folder / "plan.json")


def refused(document, folder, sealed=True, given=None):
    """Return the reasons against a document, sealed again if asked."""
    path = folder / "forged.json"
    path.write_text(json.dumps(seal(document) if sealed else document))
    try:
        return verify(path, simulate=True, given=given)
    except InputError as error:
        return [str(error)]


def leaves(value, where=()):
    """Yield the place of every plain value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*where, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, (*where, index))
    else:
        yield where


def test_a_plan_without_any_one_of_its_keys_is_refused(document, folder):
    of_best = [("best", key) for key in document["best"]]
    for place in [*((key,) for key in document), *of_best]:
        held = document if len(place) == 1 else document["best"]
        without = {key: value for key, value in held.items() if key != place[-1]}
        bare = without if len(place) == 1 else {**document, "best": without}
        if place[0] in ("schema", "settings", "certificate"):
            continue

        (reason, *_) = changed_from(document, bare)

        assert reason.startswith(f'{".".join(place)} is "absent"')


def changed_from(document, other):
    """Return what is said of another document than the one that is made again."""
    return verifying.changed(
        other, json.dumps(document), "planned", {}, verifying._SEAL
    )


PLACES = ["", "best", "best.price", "settings", "traffic", "purchase"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["document_digest", "certificate.document_digest"])
def test_a_text_under_the_name_of_the_digest_is_refused_at_every_place(
    document, place, name
):
    forged = json.loads(json.dumps(document))
    inner = forged
    for key in filter(None, place.split(".")):
        inner = inner[key]
    inner[name] = "approved: only 1 GPU is needed"

    assert any("approved" in reason for reason in changed_from(document, forged))


def test_a_plan_with_a_text_beside_its_certificate_is_refused(document, folder):
    forged = {**document, "document_digest": "approved: only 1 GPU is needed"}

    assert refused(forged, folder)


def test_every_null_and_empty_list_of_a_plan_is_compared(document):
    empty = [key for key, value in document.items() if value in (None, [])]
    assert empty

    for key in empty:
        bare = {name: value for name, value in document.items() if name != key}
        assert changed_from(document, bare)


def test_a_plan_whose_traffic_was_changed_is_refused(document, folder):
    rows = [{**row, "rate_per_s": 1.0} for row in document["throughput"]]

    (reason, *_) = refused({**document, "throughput": rows}, folder)

    assert reason.startswith("throughput[0].rate_per_s is 1.0")


def test_a_plan_is_verified_as_it_was_written(folder):
    assert verify(folder / "plan.json", simulate=True) == []


def test_a_plan_is_verified_with_its_trace_beside_it(folder, tmp_path):
    for name in ("plan.json", "own.csv"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    document = json.loads((tmp_path / "plan.json").read_text())
    moved = json.dumps(document).replace(str(folder), "/no/longer/there")
    (tmp_path / "plan.json").write_text(json.dumps(seal(json.loads(moved))))

    assert verify(tmp_path / "plan.json", simulate=True) == []


@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
def test_a_plan_as_of_a_day_is_made_again_as_of_that_day(folder, tmp_path):
    prices = tmp_path / "prices.csv"
    rows = ["provider,gpu,node,gpus,usd_per_gpu_h,as_of"]
    rows += [f"Acme,H100-SXM,a8,8,{usd},2026-{month}-01" for usd, month in ROWS]
    prices.write_text("\n".join(rows) + "\n")
    given = {**SETTINGS, "price": {}, "prices": str(prices), "as_of": None}
    made = plan(
        PlanSettings(**given, trace=folder / "own.csv", price_date="2026-04-15")
    )
    path = tmp_path / "plan.json"
    path.write_text(plan_json(made))
    named = {"trace": str(folder / "own.csv"), "prices": str(prices)}

    assert made.best.configuration.price.usd_per_gpu_h == 3.0
    assert made.settings["price_date"] == made.settings["as_of"] == "2026-04-15"
    assert any(row.what == "price date" for row in made.assumptions)
    assert verify(path, simulate=True, given=named) == []

    document = read_plan(path)
    document["settings"] |= {"price_date": "2026-07-15", "as_of": "2026-07-15"}
    reasons = refused(document, folder, given={"prices": str(prices)})
    assert any("usd_per" in reason for reason in reasons)


ROWS = ((3.5, "01"), (3.0, "04"), (2.0, "07"))


def test_another_trace_is_refused(folder, tmp_path):
    other = tmp_path / "other.csv"
    lines = (folder / "own.csv").read_text().splitlines()
    lines[100] = lines[100].replace(lines[100].split(",")[1], "399", 1)
    other.write_text("\n".join(lines) + "\n")

    given = {"trace": str(other)}
    assert verify(folder / "plan.json", simulate=True, given=given)


FORGERIES = {
    "more KV and fewer replicas": [
        (("settings", "kv_blocks"), 30_000),
        (("certificate", "engine", "kv_blocks"), 30_000),
    ],
    "a lower target": [(("settings", "attainment"), 0.5)],
    "a price": [(("best", "price", "usd_per_gpu_h"), 0.01)],
    "a cost": [(("best", "usd_per_h"), 0.02)],
    "more replicas": [(("best", "replica_count"), 12)],
    "the SLO that is shown": [(("slo_text",), "ttft ≤ 1 ms")],
    "the rate that is shown": [(("rate_per_s",), 4000.0)],
    "no bound": [(("best", "bound"), None)],
    "a bound without a method": [(("certificate", "bound", "method"), "none")],
    "infeasible": [
        (("status",), "infeasible"),
        (("best",), None),
        (("certificate",), None),
    ],
    "a warning more": [(("warnings",), ["careful"])],
    "a note": [(("best", "profile_note"), "Measured on this machine.")],
    "a key more": [(("best", "verified"), True)],
}


@pytest.mark.thorough
@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.parametrize("sealed", [True, False])
def test_forged_plans_are_refused(document, folder, forgery, sealed, changed):
    forged = document
    for where, value in FORGERIES[forgery]:
        forged = changed(forged, where, value)
    sealed = sealed and forged["certificate"] is not None

    assert forged != document
    assert refused(forged, folder, sealed)


@pytest.mark.thorough
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_every_single_change_is_refused_even_when_sealed_again(
    data, document, folder, changed
):
    places = [place for place in leaves(document) if place[-1] != "document_digest"]
    place = data.draw(st.sampled_from(places))
    value = document
    for key in place:
        value = value[key]
    other = data.draw(
        st.one_of(
            st.integers(0, 10**6),
            st.floats(0.001, 1e6),
            st.text(max_size=5),
            st.none(),
            st.booleans(),
        )
    )
    assume(other != value)
    if place[0] == "settings":  # another spelling may mean the same
        other = "nonsense"

    assert refused(changed(document, place, other), folder)


def test_an_infeasible_plan_is_verified_too(folder, tmp_path):
    made = plan(
        PlanSettings(**{**SETTINGS, "slo": "tpot=1ms"}, trace=folder / "own.csv")
    )
    path = folder / "infeasible.json"
    path.write_text(plan_json(made))

    assert made.best is None
    assert verify(path, simulate=True) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[1]", "expected a JSON object"),
        ("{}", "expected a JSON object"),
        (
            '{"schema": "capplan.plan/2", "settings": {}, "best": NaN}',
            "NaN is not a number",
        ),
        ("[" * 100_000, "nested too deeply"),
        (
            '{"schema": "capplan.plan/2", "settings": {}, "seed": 1, "seed": 2}',
            "the key 'seed' appears twice",
        ),
        (
            '{"schema": "capplan.plan/2", "settings": {"rate": 1, "rate": 2}}',
            "the key 'rate' appears twice",
        ),
        (
            '{"schema": "capplan.plan/2", "settings": {"trace": 5}}',
            "settings.trace is 5; expected a text",
        ),
    ],
)
def test_what_is_no_plan_is_one_line_and_exit_2(text, message, tmp_path, capsys):
    path = tmp_path / "plan.json"
    path.write_text(text)

    code = exit_code(["verify", str(path)])

    error = capsys.readouterr().err
    assert code == 2
    assert message in error
    assert error.count("\n") == 1


HUGE = {
    "rate": (1e12, "rate is 1000000000000.0; expected less than"),
    "max_num_seqs": (10**9, "max_num_seqs is 1000000000; expected less than"),
    "max_num_batched_tokens": (10**9, "max_num_batched_tokens is 1000000000; exp"),
    "block_size": (10**9, "block_size is 1000000000; expected less than"),
    "kv_blocks": (10**15, "kv_blocks is 1000000000000000; expected less than"),
    "seed": (10**30, "10000000000000000000 is not a number of JSON, or too"),
    "latency_ms": ([1e300] * 5, "latency_ms is 1e+300; expected less than"),
    "api_overhead_ms": (1e300, "api_overhead_ms is 1e+300; expected less than"),
    "arrivals": ("cox:sigma=1,tau_s=1e-12", "cox: tau_s is 1e-12; expected 0.005"),
    "workload": ("synthetic:prompt=1,output=1,n=999999999", "n is 999,999,999; exp"),
    "trace": ("/dev/zero", "its trace 'zero' does not lie beside it; put it there"),
}
"""Settings of a request that would keep verify busy for minutes, or take gigabytes."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", HUGE)
def test_a_huge_value_of_the_request_is_refused_before_anything_is_allocated(
    name, document, folder, changed, capsys
):
    value, message = HUGE[name]
    forged = changed(document, ("settings", name), value)
    if name in ("arrivals", "workload"):
        forged["settings"] |= {"rate": 20.0}
    if name == "workload":
        del forged["settings"]["trace"]
    path = folder / "forged.json"
    path.write_text(json.dumps(seal(forged)))

    tracemalloc.start()
    code = exit_code(["verify", str(path)])
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert code == 2
    assert most_bytes < 100 * 2**20
    assert message in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("replica_count",), 10**9),
        (("sample",), 10**9),
        (("engine", "max_num_seqs"), 10**9),
        (("engine", "max_num_batched_tokens"), 10**9),
        (("engine", "scheduler"), "orca"),
        (("engine", "kv_blocks"), 10**15),
        (("engine",), 5),
        (("bound",), [1]),
    ],
)
def test_a_certificate_of_other_sizes_is_refused(
    where, value, document, folder, changed
):
    forged = changed(document, ("certificate", *where), value)
    if where == ("replica_count",):  # as the best candidate says too
        block = forged["certificate"]
        block["simulated"]["failing"] = 0.1
        for place in (forged["best"], *forged["candidates"]):
            place |= {"replica_count": value, "gpu_count": value}
            place["usd_per_h"] = value * place["price"]["usd_per_gpu_h"]

    (reason, *_) = refused(forged, folder)

    assert "malformed" in reason


@pytest.fixture
def with_file(tmp_path, folder, monkeypatch):
    """A plan whose scheduler is a file of its own that says when it is executed."""
    mine, said = tmp_path / "mine.py", tmp_path / "said"
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "simulator"))
    from own_schedulers import FAIR

    mine.write_text(FAIR + f"\nopen({str(said)!r}, 'w').close()\n")
    settings = {**SETTINGS, "scheduler": str(mine)}
    made = plan(PlanSettings(**settings, trace=folder / "own.csv"))
    path = tmp_path / "plan.json"
    path.write_text(plan_json(made))
    (tmp_path / "own.csv").write_bytes((folder / "own.csv").read_bytes())
    said.unlink()
    for name in [name for name in sys.modules if name.startswith("own_scheduler_")]:
        del sys.modules[name]
    own_file._loaded.cache_clear()
    return path, mine, said


@pytest.mark.thorough
def test_a_received_plans_python_file_is_not_executed_without_trust(with_file, capsys):
    path, mine, said = with_file

    assert exit_code(["verify", str(path)]) == 2
    assert f"the Python file {mine}" in capsys.readouterr().err
    assert not said.exists()
    assert exit_code(["verify", str(path), "--no-simulate"]) == 0
    assert not said.exists()
    assert exit_code(["verify", str(path), "--trust"]) == 0
    assert said.exists()


@pytest.mark.thorough
def test_a_trusted_file_of_another_content_is_not_executed(with_file, capsys):
    path, mine, said = with_file
    mine.write_text(mine.read_text() + "# more\n")

    assert exit_code(["verify", str(path), "--trust"]) == 2
    assert "mine.py has changed, to sha256-" in capsys.readouterr().err
    assert not said.exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("place", "code", "why"),
    [
        ("settings", 2, "does not name the content of its scheduler"),
        ("engine", 1, "its engine is not that of the configuration"),
    ],
)
def test_a_file_named_without_its_content_is_not_executed(
    place, code, why, with_file, capsys
):
    path, mine, said = with_file
    document = json.loads(path.read_text())
    if place == "settings":
        document["settings"]["scheduler"] = str(mine)
    else:
        del document["settings"]["scheduler"]
        document["certificate"]["engine"]["scheduler"] = f"{mine}:weight=2"
    path.write_text(json.dumps(seal(document)))

    assert exit_code(["verify", str(path), "--trust"]) == code
    assert why in capsys.readouterr().err
    assert not said.exists()


def test_no_simulate_says_what_was_checked_and_does_not_say_verified(folder, capsys):
    assert exit_code(["verify", str(folder / "plan.json"), "--no-simulate"]) == 0

    shown = capsys.readouterr().out
    assert "not verified: it claims replicas" in shown
    assert "Checked: its digest" in shown
    assert "Not checked: the requests, the lower bound, the simulations" in shown


def test_no_simulate_refuses_a_plan_without_a_certificate(
    document, folder, changed, capsys
):
    forged = changed(document, ("certificate",), None)
    forged |= {"status": "infeasible", "best": None}
    path = folder / "forged.json"
    path.write_text(json.dumps(forged))

    assert exit_code(["verify", str(path), "--no-simulate"]) == 1
    assert "no certificate: without planning again" in capsys.readouterr().err


def test_the_command_prints_what_holds_and_what_is_refused(
    folder, document, capsys, changed
):
    held = exit_code(["verify", str(folder / "plan.json")])
    forged = folder / "forged.json"
    forged.write_text(json.dumps(seal(changed(document, ("seed",), 5))))

    refusal = exit_code(["verify", str(forged)])

    shown = capsys.readouterr()
    assert (held, refusal) == (0, 1)
    assert "every figure planned again" in shown.out
    assert "seed is 5; planned again: 0" in shown.err
    assert isinstance(folder, Path)
