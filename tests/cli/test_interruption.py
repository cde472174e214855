"""Ctrl-C: quits before a simulation, stops and reports during one, then quits."""

import signal
import threading
from contextlib import suppress

import pytest

from capplan.cli.interruption import interruptible


def press():
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_during_a_simulation_only_says_so(capsys):
    with interruptible() as stopped:
        before = stopped()
        press()
        after = stopped()

    assert (before, after) == (False, True)
    assert capsys.readouterr().err == (
        "capplan: stopping; press Ctrl-C again to quit at once\n"
    )


def test_a_second_ctrl_c_quits():
    with interruptible() as stopped:
        stopped()
        press()

        with pytest.raises(KeyboardInterrupt):
            press()


def test_ctrl_c_before_the_simulation_asks_quits():
    with pytest.raises(KeyboardInterrupt), interruptible():
        press()


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_the_handler_of_before_is_back_however_it_ends(error):
    handler = signal.getsignal(signal.SIGINT)
    inside = []

    with suppress(ValueError, KeyboardInterrupt), interruptible():
        inside.append(signal.getsignal(signal.SIGINT))
        if error is not None:
            raise error

    assert inside != [handler]
    assert signal.getsignal(signal.SIGINT) is handler


def test_another_thread_leaves_the_signal_alone():
    seen = []

    def work():
        with interruptible() as stopped:
            seen.append((stopped(), signal.getsignal(signal.SIGINT)))

    handler = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert seen == [(False, handler)]
