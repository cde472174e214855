"""``capplan profiles list|show|compare|validate``."""


def test_list_draws_a_table_on_a_terminal(terminal):
    screen = terminal("profiles", "list", "--gpu", "H100-SXM")

    assert screen.exit_code == 0, screen.text
    assert "\x1b[1m" in screen.text
    assert "┃" in screen.text
