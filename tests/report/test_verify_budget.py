"""A budget is verified from its own rows and again; forged figures are refused."""

import json

import pytest

from capplan.cli.main import exit_code
from capplan.cli.verify import REFUSED
from capplan.errors import InputError
from capplan.planning.budget.budget import budget
from capplan.planning.budget.settings import BudgetSettings
from capplan.report.pages.budget import budget_values
from capplan.report.received.verify_budget import verify_budget
from capplan.report.render.json_text import json_text
from tests import budgets
from tests.budgets import stub_plans

pytestmark = pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
ASKED = {
    **budgets.ASKED,
    "commit": "reserved:12=40%,reserved:36=60%",
    "contract": "3@9:5",
    "horizon_months": 14,
    "growth": "3%/month",
    "as_of": "2026-11-20",
    "scenarios": {"high": {"scale": 1.5}},
}


@pytest.fixture
def planned(monkeypatch):
    """Plans that are not simulated."""
    return stub_plans(monkeypatch)


@pytest.fixture
def document(planned):
    found = budget(BudgetSettings(**ASKED))
    return json.loads(json_text(budget_values(found)))


@pytest.fixture
def reasons(tmp_path):
    """What is said against a document."""

    def of(document, simulate=False, given=None):
        path = tmp_path / "budget.json"
        path.write_text(json.dumps(document))
        return verify_budget(path, simulate=simulate, given=given)

    return of


@pytest.mark.parametrize("simulate", [False, True])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"commit": "none"},
        {"spot_share": 0.3, "spot_price": 0.7, "price": "H100-SXM=2"},
        {"fleet": "static", "spares": 2},
        {"charge": "horizon"},
        {"currency": "EUR", "exchange_rate": 1.1},
    ],
)
def test_a_budget_is_verified_as_it_was_written(planned, reasons, more, simulate):
    found = budget(BudgetSettings(**{**ASKED, **more}))

    document = json.loads(json_text(budget_values(found)))

    assert reasons(document, simulate=simulate) == []


def test_terms_paid_upfront_are_verified(planned, reasons, tmp_path):
    prices = tmp_path / "offers.csv"
    prices.write_text(
        "gpu,node,gpus,provider,kind,usd_per_node_h,term_months,upfront_share,as_of\n"
        "H100-SXM,n8,8,P,on-demand,30,,,2026-11-01\n"
        "H100-SXM,n8,8,P,reserved,15,12,0.5,2026-11-01\n"
    )
    settings = {**ASKED, "price": {}, "prices": str(prices), "commit": "reserved:12"}
    settings |= {"horizon_months": 10, "contract": ()}  # two months before it ends
    found = budget(BudgetSettings(**settings))
    document = json.loads(json_text(budget_values(found)))

    given = {"prices": str(prices)}
    assert document["usd_prepaid_after"] > 0
    assert reasons(document, simulate=True, given=given) == []
    next(row for row in document["commitments"] if row["upfront_share"])[
        "upfront_share"
    ] = 0.25
    assert any("usd_paid" in reason for reason in reasons(document))


MONEY = (
    *("usd", "usd_committed", "usd_on_demand", "usd_paid", "usd_owed"),
    *("committed_nodes", "on_demand_node_hours", "commitment_utilisation"),
    *("commitment_coverage", "node_hours"),
)


@pytest.mark.parametrize("name", MONEY)
def test_a_forged_figure_of_a_month_is_refused_from_the_rows(document, reasons, name):
    document["months"][3][name] *= 1.01

    assert reasons(document)


@pytest.mark.parametrize(
    "name",
    [
        *("usd", "usd_unused", "usd_owed_after", "utilisation", "nodes"),
        *("first_month", "last_month", "usd_per_node_h", "break_even"),
    ],
)
def test_a_forged_figure_of_a_commitment_is_refused_from_the_rows(
    document, reasons, name
):
    each = max(document["commitments"], key=lambda each: each["last_month"])
    value = each[name]
    each[name] = value + 1 if isinstance(value, int) else value * 0.99 + 0.02

    assert reasons(document)


@pytest.mark.parametrize(
    "name",
    ["usd", "usd_owed_after", "commitment_utilisation", "commitment_coverage"],
)
def test_a_forged_total_is_refused_from_the_rows(document, reasons, name):
    document[name] = document[name] * 0.9 + 0.01

    assert any(reason.startswith(name) for reason in reasons(document))


def test_a_cent_is_seen(document, reasons):
    document["usd"] += 0.01

    assert reasons(document)


def test_rows_that_were_all_changed_together_are_refused_when_budgeted_again(
    planned, document, reasons
):
    factor = 0.9
    for row in (*document["months"], *document["commitments"], document):
        for name in [name for name in row if "usd" in name]:
            value = row[name]
            if isinstance(value, dict):
                row[name] = {key: each * factor for key, each in value.items()}
            elif value is not None:
                row[name] = value * factor

    assert reasons(document) == []
    assert any("usd" in reason for reason in reasons(document, simulate=True))


def test_every_changed_leaf_is_refused_when_budgeted_again(planned, document, reasons):
    document["scenarios"][0]["usd"] += 1
    (reason,) = reasons(document, simulate=True)
    assert "scenarios[0].usd" in reason

    document["scenarios"][0]["usd"] -= 1
    document["months"][0]["nodes_by_hour"][5] += 1
    (reason,) = reasons(document, simulate=True)
    assert "nodes_by_hour" in reason


@pytest.mark.parametrize("lost", ["months", "commitments", "usd"])
def test_a_malformed_budget_is_refused(document, reasons, lost):
    del document[lost]

    assert reasons(document)[0].startswith("it is malformed")


def test_a_file_of_another_schema_is_one_line(document, reasons):
    document["schema"] = "capplan.budget/0"

    with pytest.raises(InputError, match="run capplan budget again"):
        reasons(document)


def test_the_command_refuses_with_its_own_exit_code(document, tmp_path, capsys):
    path = tmp_path / "budget.json"
    path.write_text(json.dumps(document))
    assert exit_code(["verify", str(path)]) == 0
    assert "every figure budgeted again" in capsys.readouterr().out

    document["usd"] += 100
    path.write_text(json.dumps(document))
    assert exit_code(["verify", str(path), "--no-simulate"]) == REFUSED
    assert "refused: usd is" in capsys.readouterr().err
