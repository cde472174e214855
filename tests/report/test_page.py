"""Pages are filled in from templates, with every text escaped."""

import pytest
from jinja2 import UndefinedError

from capplan.report import page


@pytest.fixture
def render(tmp_path, monkeypatch):
    """Render a template of the given text."""
    monkeypatch.setattr(page, "TEMPLATES", tmp_path)

    def rendered(template, **values):
        (tmp_path / "own.html.j2").write_text(template)
        return page.render_page("own.html.j2", **values)

    return rendered


def test_text_is_escaped_in_content_and_attributes(render):
    shown = render('<p title="{{ text }}">{{ text }}</p>', text='"><b>&')

    assert shown == '<p title="&#34;&gt;&lt;b&gt;&amp;">&#34;&gt;&lt;b&gt;&amp;</p>'


def test_a_missing_value_is_an_error_and_not_an_empty_text(render):
    with pytest.raises(UndefinedError, match="missing"):
        render("{{ missing }}")


@pytest.mark.parametrize(
    ("filter_name", "value", "expected"),
    [
        ("share", 0.98996, "98.99 %"),
        ("count", 20_000, "20,000"),
        ("duration", 0.0123, "12.3 ms"),
        ("usd", 2.494, "$2.49"),
        ("fine_usd", 0.0414, "$0.0414"),
        ("share", None, "–"),
        ("count", None, "–"),
        ("duration", None, "–"),
    ],
)
def test_filters_show_numbers_as_the_terminal_does(
    render, filter_name, value, expected
):
    assert render(f"{{{{ value | {filter_name} }}}}", value=value) == expected
