"""An autoscale.json is verified as it was written, and no forged copy of it."""

import json
import shutil
from contextlib import suppress

import pytest

from capplan.cli.main import exit_code
from capplan.errors import CapplanError, InputError
from capplan.report.pages.autoscale import DIGEST, digest_of
from capplan.report.received.verify_autoscale import verify_autoscaled

COMMAND = (
    "autoscale --latency-ms 20,0.2,0,1,0.0001 --kv-blocks 4000 --cold-start 5s "
    "--slo ttft=1s,tpot=60ms --policies schedule,hpa:target=8 --outage 1@20s:10s "
    "--no-break-even"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of two policies, and the trace beside them."""
    folder = tmp_path_factory.mktemp("autoscaled")
    rows = [f"{k / 8:.3f},{150 + k % 97},{20 + k % 31}" for k in range(1200)]
    head = "arrival_s,prompt_tokens,output_tokens"
    (folder / "own.csv").write_text("\n".join([head, *rows]) + "\n")
    code = exit_code(
        [*COMMAND.split(), "--trace", f"{folder}/own.csv", "--out", f"{folder}"]
    )
    assert code == 0
    return folder


@pytest.fixture
def document(folder):
    return json.loads((folder / "autoscale.json").read_text())


def refused(document, folder, *, sealed=True):
    """Return the reasons against a document, sealed again if asked."""
    if sealed:
        document = {**document, DIGEST: digest_of(document)}
    path = folder / "forged.json"
    path.write_text(json.dumps(document))
    return verify_autoscaled(path, simulate=True)


def test_a_file_is_verified_as_it_was_written(folder, capsys):
    path = folder / "autoscale.json"

    assert exit_code(["verify", str(path)]) == 0

    assert "verified: every figure simulated again" in capsys.readouterr().out


def test_it_is_verified_where_it_was_copied_with_its_trace(folder, tmp_path, capsys):
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in ("autoscale.json", "own.csv"):
        shutil.copy(folder / name, moved)
    document = json.loads((moved / "autoscale.json").read_text())
    document["settings"]["trace"] = "/gone/own.csv"
    text = json.dumps(document).replace(str(folder / "own.csv"), "/gone/own.csv")
    document = json.loads(text)
    document[DIGEST] = digest_of(document)
    (moved / "autoscale.json").write_text(json.dumps(document))

    assert exit_code(["verify", str(moved / "autoscale.json")]) == 0


def test_a_change_is_refused_by_the_digest(document, folder):
    document["policies"][0]["gpu_hours_paid"] *= 0.5

    assert "digest does not match" in refused(document, folder, sealed=False)[0]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("policies", 0, "slo_attainment"), 1.0),
        (("policies", 1, "actions_per_day"), 3.0),
        (("policies", 0, "static_replicas"), 9),
        (("fixed", "peak_replicas"), 7),
        (("lower_bound_gpu_hours",), 0.001),
        (("losses", 0, "spares"), 0),
        (("replica_rate_per_s",), 99.0),
        (("cold_start_s",), 6.0),
    ],
)
def test_a_figure_that_was_changed_and_sealed_again_is_refused(
    place, value, document, folder
):
    at = document
    for part in place[:-1]:
        at = at[part]
    assert at[place[-1]] != value
    at[place[-1]] = value

    reasons = refused(document, folder)

    assert any(str(place[-1]) in reason for reason in reasons)
    assert any("simulated again" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("name", "factor", "why"),
    [
        ("gpu_hours_paid", 0.5, "expected none to be more than the one before"),
        ("gpu_hours_busy", 9.0, "expected none to be more than the one before"),
        ("lower_bound_gpu_hours", 99.0, "below the bound"),
    ],
)
def test_what_breaks_a_law_is_refused_without_a_simulation(
    name, factor, why, document, folder
):
    document["policies"][0][name] *= factor
    document[DIGEST] = digest_of(document)
    path = folder / "forged.json"
    path.write_text(json.dumps(document))

    reasons = verify_autoscaled(path, simulate=False)

    assert why in reasons[0]


def test_one_that_is_only_read_is_not_called_verified(folder, capsys):
    path = folder / "autoscale.json"

    assert exit_code(["verify", "--no-simulate", str(path)]) == 0

    assert "not verified: its digest matches" in capsys.readouterr().out


def test_one_of_another_release_is_to_be_made_again(document, folder):
    document["schema"] = "capplan.autoscale/0"

    with pytest.raises(InputError, match=r"this release reads 'capplan.autoscale/1'"):
        refused(document, folder)


def test_a_malformed_one_is_refused_and_not_read_on(document, folder):
    document["policies"] = [{"name": "hpa"}]

    assert "malformed" in refused(document, folder)[0]


def test_a_foreign_scheduler_is_not_executed(document, folder):
    document["settings"]["scheduler"] = "evil.py"

    with pytest.raises(InputError, match="is the Python file"):
        refused(document, folder)


def leaves(value, where=()):
    """Yield the place of every plain value."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in pairs:
            yield from leaves(item, (*where, key))
    else:
        yield where


def put(document, place, value):
    """Return a copy with another value at a place, sealed."""
    document = json.loads(json.dumps(document))
    at = document
    for part in place[:-1]:
        at = at[part]
    at[place[-1]] = value
    return {**document, DIGEST: digest_of(document)}


@pytest.mark.parametrize("value", [None, "x", [], {}, -1e300, True])
def test_whatever_stands_in_a_place_is_read_or_refused(value, document, folder):
    path = folder / "other.json"
    for place in leaves(document):
        path.write_text(json.dumps(put(document, place, value)))
        with suppress(CapplanError):
            verify_autoscaled(path, simulate=False)


@pytest.mark.thorough
def test_no_figure_can_be_another_one(document, folder):
    path = folder / "other.json"
    places = [at for at in leaves(document) if at[0] not in (DIGEST, "settings")]
    for place in places[::8]:
        path.write_text(json.dumps(put(document, place, 0.123)))
        try:
            reasons = verify_autoscaled(path, simulate=True)
        except InputError as error:
            reasons = [str(error)]
        assert reasons, place
