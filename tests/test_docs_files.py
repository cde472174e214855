"""docs/reference/files.md works: its commands run and print what it shows."""

import re
from pathlib import Path

import pytest

from capplan.cli.main import exit_code

PAGE = Path(__file__).resolve().parent.parent / "docs/reference/files.md"
BILL = """\
ChargePeriodStart,ChargePeriodEnd,BillingCurrency,ChargeCategory,EffectiveCost,\
ConsumedQuantity,ConsumedUnit,ChargeDescription,CommitmentDiscountStatus
2026-11-01T00:00:00Z,2026-12-01T00:00:00Z,USD,Usage,3200,760,Hours,2 x H100-SXM,
2026-11-01T00:00:00Z,2026-12-01T00:00:00Z,USD,Usage,91.60,20,Hours,H100-SXM,Unused
2026-11-01T00:00:00Z,2026-12-01T00:00:00Z,USD,Credit,-50,,,2 x H100-SXM,
2026-11-01T00:00:00Z,2026-12-01T00:00:00Z,USD,Usage,12,300,GB,object storage,
"""
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
def test_every_block_of_the_page_does_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bill.csv").write_text(BILL)
    text = PAGE.read_text(encoding="utf-8")
    codes, shown = [], ""

    for kind, block in BLOCK.findall(text):
        for line in block.splitlines():
            if kind == "sh":
                codes.append(exit_code(line.split()[1:]))
            else:
                assert " ".join(line.split()) in shown
        if kind == "sh":
            shown = re.sub(r"[ \t]+", " ", "".join(capsys.readouterr()))

    assert codes == [0, 0, 0, 4, 0]
    for name in re.findall(r"`(plan\.[a-z.]+)`", text):
        assert (tmp_path / "before" / name).is_file()
