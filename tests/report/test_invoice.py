"""A plan's bill against the one that came: parts add up to the cent."""

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.cli.main import exit_code
from capplan.errors import InputError
from capplan.report.pages.invoice import invoice_page
from capplan.report.received.invoice import invoice

NODE = {"node": "p5.48xlarge", "provider": "AWS", "gpu": "H100-SXM"}
DAY = "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bill")


def plan_of(folder, *nodes, **more):
    best = {"nodes": [*nodes]} if nodes else None
    path = folder / "plan.json"
    path.write_text(
        json.dumps({"schema": "capplan.plan/2", "best": best, "settings": {}, **more})
    )
    return path


def two_nodes(usd=50.0, count=2):
    """Two nodes of eight GPUs at $50 an hour each."""
    return {**NODE, "count": count, "gpus_paid": 8 * count, "usd_per_h": count * usd}


def charge(usd, quantity=None, unit="Hours", name="p5.48xlarge", **more):
    return {
        "BillingCurrency": "USD",
        "ChargePeriodStart": DAY[0],
        "ChargePeriodEnd": DAY[1],
        "ChargeCategory": "Usage",
        "EffectiveCost": usd,
        "ConsumedQuantity": quantity,
        "ConsumedUnit": unit,
        "ChargeDescription": f"$50 per {name} instance hour",
        "CommitmentDiscountStatus": None,
        **more,
    }


def bill(folder, *rows):
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0].keys())
    writer.writeheader()
    writer.writerows(rows)
    path = folder / "bill.csv"
    path.write_text(text.getvalue())
    return path


def test_a_bill_is_told_by_price_volume_idle_hours_and_credits(folder):
    # Planned for a day: 2 x 24 h at $50 = $2,400. Billed: 60 h at $45, 10 h idle for
    # $400, a credit of $30: 12 h more at $50, 10 h idle at $50, and the prices are
    # 60 x $5 and 10 x $10 lower.
    path = bill(
        folder,
        charge(2700, 60),
        charge(400, 10, CommitmentDiscountStatus="Unused"),
        charge(-30, ChargeCategory="Credit"),
        charge(7, 3, "GB", name="object storage"),
    )

    found = invoice(plan_of(folder, two_nodes()), path)

    assert (found.planned_cents, found.billed_cents) == (240_000, 307_000)
    assert found.effects == {
        "price": -40_000,
        "volume": 60_000,
        "idle": 50_000,
        "other": -3_000,
        "total": 67_000,
    }
    assert (found.nodes[0].mean_count, found.nodes[0].idle_hours) == (2.5, 10)
    assert (found.left_out, found.left_out_usd) == (1, 7)
    page = invoice_page(found)
    assert page.headline == "Billed $3,070.00: $670.00 (27.9 %) more than planned"
    assert "1 charge for something else ($7.00) left out" in page.lead


@pytest.mark.parametrize(
    ("quantity", "unit"),
    [
        (48, "Hrs"),
        (48, "1 Hour"),
        (48, "Node-Hours"),
        (384, "GPU-Hours"),
        (172_800, "seconds"),
    ],
)
def test_hours_are_read_in_the_units_of_clouds(folder, quantity, unit):
    found = invoice(
        plan_of(folder, two_nodes()), bill(folder, charge(2400, quantity, unit))
    )

    assert found.nodes[0].mean_count == 2
    assert set(found.effects.values()) == {0}
    assert invoice_page(found).headline == "Billed $2,400.00, as planned"


def test_the_charges_that_a_plan_expects_are_as_planned(folder):
    """Its own plan.focus.csv."""
    root = Path(__file__).parents[2] / "reports" / "plan"

    found = invoice(root, root / "plan.focus.csv")

    assert found.planned_cents > 0
    assert set(found.effects.values()) == {0}


@given(
    st.lists(
        st.tuples(
            st.floats(-1e4, 1e5),
            st.floats(0, 1e4),
            st.sampled_from(["Used", "Unused", None]),
            st.sampled_from(["Usage", "Credit", "Tax", "Purchase"]),
        ),
        min_size=1,
    ),
    st.integers(1, 50),
)
def test_the_parts_add_up_to_the_difference(folder, rows, count):
    path = bill(
        folder,
        *(
            charge(usd, h, CommitmentDiscountStatus=status, ChargeCategory=category)
            for usd, h, status, category in rows
        ),
    )

    found = invoice(plan_of(folder, two_nodes(count=count)), path)

    *parts, total = found.effects.values()
    assert sum(parts) == total == found.billed_cents - found.planned_cents
    assert found.planned_cents == count * 120_000
    for row in found.nodes:
        moved = row.volume_usd + row.idle_usd + row.price_usd + row.other_usd
        assert row.planned_usd + moved == pytest.approx(row.billed_usd, abs=1e-6)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"BillingCurrency": "EUR"}, "line 2: BillingCurrency is 'EUR'; expected USD"),
        ({"EffectiveCost": "x"}, "line 2: EffectiveCost is 'x'; expected a number"),
        ({"EffectiveCost": ""}, "line 2: no EffectiveCost and no BilledCost"),
        ({"ConsumedQuantity": "nan"}, "line 2: ConsumedQuantity is 'nan'"),
        ({"ChargePeriodStart": "May"}, "line 2: ChargePeriodStart is 'May'"),
        ({"ChargePeriodEnd": DAY[0]}, "its charges last no time"),
        ({"ChargeDescription": "p4d"}, "none of 1 charges names a node of the plan"),
        ({"ConsumedUnit": "GB"}, "none of 1 charges names a node of the plan"),
        ({"ConsumedUnit": "gibibyte hour"}, "none of 1 charges names a node"),
        ({"ChargeDescription": "p5.48xlarge2"}, "none of 1 charges names a node"),
        ({"ChargeDescription": "p5.48xlarge_x"}, "none of 1 charges names a node"),
        ({"ChargeDescription": "ap5.48xlarge"}, "none of 1 charges names a node"),
    ],
)
def test_a_bill_that_cannot_be_read_is_refused_in_one_line(folder, row, said):
    path = bill(folder, {**charge(1, 1), **row})

    with pytest.raises(InputError) as refused:
        invoice(plan_of(folder, two_nodes()), path)

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_node_is_found_behind_a_prefix_of_its_cloud(folder):
    node = {**two_nodes(), "node": "ND96isr_H100_v5"}
    path = bill(folder, charge(2400, 48, name="Standard_ND96isr_H100_v5"))

    assert invoice(plan_of(folder, node), path).nodes[0].mean_count == 2


def test_a_bill_in_the_plans_currency_is_in_dollars(folder):
    settings = {"currency": "EUR", "exchange_rate": 1.25}
    path = bill(folder, charge(1920, 48, BillingCurrency="EUR"))

    found = invoice(plan_of(folder, two_nodes(), settings=settings), path)

    assert set(found.effects.values()) == {0}


def test_a_plan_without_nodes_or_prices_has_no_bill(folder):
    path = bill(folder, charge(1, 1))

    with pytest.raises(InputError, match="infeasible"):
        invoice(plan_of(folder), path)
    with pytest.raises(InputError, match="no price"):
        invoice(plan_of(folder, {**two_nodes(), "usd_per_h": None}), path)
    with pytest.raises(InputError, match="no column ChargePeriodStart"):
        invoice(plan_of(folder, two_nodes()), bill(folder, {"a": 1}))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [((), 0), (("--fail-above", "10%"), 0), (("--fail-above", "1%"), 4)],
)
def test_a_bill_above_the_plan_fails_where_that_is_asked(
    folder, capsys, arguments, code
):
    plan, path = plan_of(folder, two_nodes()), bill(folder, charge(2500, 48))

    assert exit_code(["diff", str(plan), "--actual", str(path), *arguments]) == code

    assert "Billed $2,500.00: $100.00 (4.2 %) more" in capsys.readouterr().out


def test_a_diff_takes_a_second_plan_or_a_bill(folder, capsys):
    plan = str(plan_of(folder, two_nodes()))

    assert exit_code(["diff", plan]) == 2
    assert exit_code(["diff", plan, plan, "--actual", plan]) == 2

    assert "expected a second plan, or the bill" in capsys.readouterr().err
