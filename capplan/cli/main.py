"""The ``capplan`` command; the module of a subcommand is imported when it runs."""

import errno
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from capplan.cli import interruption
from capplan.cli.answer import answering
from capplan.cli.commands import COMMANDS
from capplan.cli.help import CONTEXT, GroupedCommand, write_groups
from capplan.cli.interruption import INTERRUPTED
from capplan.cli.notices import Notices
from capplan.cli.outputs import close_outputs, open_outputs, say
from capplan.errors import CapplanError, InputError
from capplan.report.provenance import note_arguments

WRONG_INPUT = 2
UNFORESEEN = 70
BROKEN_PIPE = 141

_COMPLETING = "_CAPPLAN_COMPLETE"
"""Environment variable by which a shell asks for completions."""


GROUPS = {
    "Buy": "init plan capacity what-if budget autoscale compare fleet demand",
    "Check and run": "explain diff ci verify simulate backtest place search export",
    "Measure": "profile fit check-scheduler",
    "Look up": "list prices profiles trace mcp",
}
"""Commands by what they are for, as the help lists them."""


class LazyCommand(TyperCommand):
    """A command whose module is imported only when it runs."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any):
        """Import the command and parse its arguments."""
        real = load_command(str(self.name))
        return real.make_context(info_name, args, parent=parent, **extra)


class LazyGroup(TyperGroup):
    """The commands of ``COMMANDS``."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of ``COMMANDS``."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command; an unknown name is refused with the nearest."""
        if cmd_name not in COMMANDS:
            near = get_close_matches(cmd_name, COMMANDS, n=1) or list(COMMANDS)
            raise InputError(
                f"{cmd_name} is not a command; did you mean {', '.join(near)}?"
            )
        text = COMMANDS[cmd_name].summary
        return LazyCommand(cmd_name, help=text, short_help=text)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by what they are for."""
        groups = {
            heading: [(name, COMMANDS[name].summary) for name in names.split()]
            for heading, names in GROUPS.items()
        }
        write_groups(formatter, groups)


def load_command(name: str) -> Any:
    """Return a command, imported."""
    command = COMMANDS[name]
    loaded = import_module(f"capplan.cli.{command.module}")
    is_row = command.module == "asked"
    target = loaded.command_of(name) if is_row else getattr(loaded, command.function)
    if isinstance(target, typer.Typer):
        return typer.main.get_command(target)
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name=name, cls=GroupedCommand)(answering(target))
    return typer.main.get_command(app)


def _version(wanted: bool) -> None:
    if wanted:
        from capplan.shipped import own_version

        typer.echo(f"capplan {own_version()}")
        raise typer.Exit


app = typer.Typer(
    cls=LazyGroup,
    context_settings=CONTEXT,
    rich_markup_mode=None,
    help="How many GPUs your LLM service needs, what they cost, and how sure that is.",
    epilog="capplan COMMAND -h has an example.",
)


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
    debug: bool = typer.Option(
        False,
        "--debug",
        envvar="CAPPLAN_DEBUG",
        help="Show tracebacks of errors.",
    ),
) -> None:
    """Take the options before the command."""


def run(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code, whatever the outputs can take."""
    note_arguments(sys.argv[1:] if args is None else args)
    open_outputs()
    try:
        code = exit_code(args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe, such as head, has closed it
        code = BROKEN_PIPE
    except OSError as error:
        code = _refuse(os_error(error))
    close_outputs()
    if code == INTERRUPTED:
        os._exit(code)  # other threads may still simulate
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)


def exit_code(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; each error is one line."""
    given = list(sys.argv[1:] if args is None else args) or ["--help"]
    command = typer.main.get_command(app)
    if _COMPLETING in os.environ:  # the shell asks what may follow
        command.main(prog_name="capplan")
    debug = False
    with warnings.catch_warnings():
        notices = Notices()
        notices.listen()
        try:
            # Not command.main: it would return 130 of Ctrl-C without a word.
            with command.make_context("capplan", given) as context:
                debug = bool(context.params["debug"])
                returned = command.invoke(context)
            return returned if isinstance(returned, int) else 0
        except typer.Exit as chosen:
            return chosen.exit_code
        except (typer.Abort, KeyboardInterrupt):
            return _interrupted()
        except SystemExit as error:
            # rich turns a broken pipe into an exit with code 1.
            if isinstance(error.__context__, BrokenPipeError):
                raise error.__context__ from None
            raise
        except BrokenPipeError:
            raise
        except Exception as error:
            return _explain(error, debug)
        finally:
            notices.print_all()


def _explain(error: Exception, debug: bool) -> int:
    """Print an error in one line; return the exit code."""
    if interruption.pressed.is_set():
        return _interrupted()
    if isinstance(error, CapplanError):
        return _refuse(str(error))
    if isinstance(error, OSError):
        return _refuse(os_error(error))
    if isinstance(error, MemoryError):
        reason = str(error) or "no more can be had"
        return _refuse(f"not enough memory: {reason}; expected fewer requests")
    # Errors of typer's parser format their own message.
    message = getattr(error, "format_message", None)
    if message is None:
        return _unforeseen(error, debug)
    text = str(message())
    if text.startswith("Usage:"):  # a group of commands without a command
        print(text)
        return WRONG_INPUT
    return _refuse(text)


def _unforeseen(error: Exception, debug: bool) -> int:
    if debug:
        say("".join(traceback.format_exception(error)).rstrip())
    text = " ".join(f"{type(error).__name__}: {error}".split())
    say(
        f"capplan: unforeseen error: {text}; please report it with the command "
        f"and {'the lines above' if debug else 'what capplan --debug … prints'}"
    )
    return UNFORESEEN


def os_error(error: OSError) -> str:
    """Return what went wrong with which file, in one line."""
    full = error.errno == errno.ENOSPC  # files that capplan writes name themselves
    unnamed = "standard output or a temporary file" if full else "file"
    where = error.filename or unnamed
    return f"{where}: {error.strerror or error}"


def _interrupted() -> int:
    say("capplan: interrupted")
    return INTERRUPTED


def _refuse(message: str) -> int:
    say(f"capplan: error: {' '.join(message.split())}")
    return WRONG_INPUT
