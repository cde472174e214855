"""Reports as a browser shows and prints them: sheets of paper, and a phone's height."""

import re
import shutil
import subprocess

import pytest

import capplan
from capplan.report.page import Page, Section
from capplan.report.render.html_page import html
from capplan.report.shown import page_of
from tests.report.answered import PAGE, crowded

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]
PHONE_PX, SHORT_PX = 390, 6000
SCREEN_PX = 1280, 800
GIVEN = ("trace", "llm", "tp", "slo", "engine", "price", "as_of")
LOOSE = {"gpu": "H100-SXM"}


def asked(settings, **more):
    return {name: settings[name] for name in GIVEN} | LOOSE | more


ASKED = {
    "capacity": lambda of: capplan.capacity(**asked(of, replicas=2)),
    "compare": lambda of: capplan.compare(**asked(of, systems="vllm-v1,sarathi")),
    "what-if": lambda of: capplan.what_if(**asked(of), vary={"rate": ["x0.5", "x1"]}),
    "budget": lambda of: capplan.budget(
        **asked(of, horizon_months=3, growth="5%/month")
    ),
    "autoscale": lambda of: capplan.autoscale(
        **asked(of, policies="hpa", cold_start="2s")
    ),
    "simulate": lambda of: capplan.simulate(**asked(of, replicas=3)),
    "demand": lambda of: capplan.demand(**asked(of, rates=(40, 80))),
}


@pytest.fixture(
    scope="module",
    params=["by hand", "crowded", "plan", "classed", "infeasible", *ASKED],
)
def page(request, settings):
    """Return a page of each kind."""
    if request.param in ASKED:
        return page_of(ASKED[request.param](settings))
    if request.param in ("by hand", "crowded"):
        return PAGE if request.param == "by hand" else crowded()
    return page_of(request.getfixturevalue(request.param))


def browser(folder, *arguments):
    profile = f"--user-data-dir={folder / 'profile'}"
    plain = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=4000",
    ]
    command = [CHROMIUM, *plain, profile, "--allow-file-access-from-files", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, timeout=120)
    return done.stdout.decode()


def seen(folder, page, width, expression):
    """Return what an expression of a document comes to in a window of a width."""
    (folder / "report.html").write_text(html(page, "out"))
    (folder / "frame.html").write_text(
        f'<iframe id="f" src="report.html" style="width:{width}px;height:800px;'
        'border:0">'
        f"</iframe><script>onload = () => {{ const d = f.contentDocument; "
        f"document.title = {expression}; }}</script>"
    )
    shown = browser(folder, "--dump-dom", f"file://{folder / 'frame.html'}")
    return float(re.search(r"<title>(.*?)</title>", shown)[1])


def sheets(folder, page):
    (folder / "report.html").write_text(html(page, "out"))
    paper = folder / "report.pdf"
    browser(folder, f"--print-to-pdf={paper}", f"file://{folder / 'report.html'}")
    return len(re.findall(rb"/Type\s*/Page\b", paper.read_bytes()))


def test_an_answer_prints_on_two_sheets_and_what_has_none_on_few(page, tmp_path):
    count = sheets(tmp_path, page)

    if page.answer is None:
        assert count <= 8
    else:
        assert count == 2


def test_on_a_phone_it_is_short_and_no_wider_than_the_phone(page, tmp_path):
    height = "d.documentElement.scrollHeight"
    width = "d.documentElement.scrollWidth"

    folds = page.answer is not None
    assert seen(tmp_path, page, PHONE_PX, height) < (1 if folds else 2) * SHORT_PX
    assert seen(tmp_path, page, PHONE_PX, width) <= PHONE_PX


def test_the_chart_of_an_answer_ends_on_the_first_screen(plan, tmp_path):
    width, height = SCREEN_PX
    chart = "d.querySelector('.finding').getBoundingClientRect().bottom"

    assert seen(tmp_path, page_of(plan), width, chart) <= height


def test_the_judge_sees_a_page_that_is_too_long(tmp_path):
    page = Page("own", "Long", "", [Section("Long", notes=["word " * 9000])], dict)

    assert sheets(tmp_path, page) > 2
    assert seen(tmp_path, page, 390, "d.documentElement.scrollHeight") > SHORT_PX
