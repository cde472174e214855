"""``capplan mcp``: the questions as tools of the Model Context Protocol, over stdio.

Written to the official Python SDK (``mcp`` 2), which is an extra.
"""

import contextlib
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from capplan.cli.parameters import flag
from capplan.errors import CapplanError, InputError

if TYPE_CHECKING:
    from capplan.cli.tools import Tools


def mcp_command(
    out: Annotated[
        Path | None,
        flag("DIR", "Write the files of each answer into a folder below this one."),
    ] = None,
    trust: Annotated[
        bool, flag("", "Execute a scheduler's Python file that an argument names.")
    ] = False,
) -> None:
    """Serve plan, what-if, capacity, backtest and explain to an assistant.

    As tools of the Model Context Protocol on standard input and output, with the same
    settings and documents as the commands. They read the files that arguments name,
    with your rights, and write none but below --out.
    """
    from capplan.cli.tools import Tools
    from capplan.files import check_folder

    try:
        import anyio
        from mcp.server.stdio import stdio_server
    except ImportError:
        raise InputError(
            "capplan mcp needs its SDK; install it with pip install 'capplan[mcp]'"
        ) from None
    if out is not None:
        check_folder(str(out))

    async def serve() -> None:
        at = server(Tools(out, trust))
        async with stdio_server() as (read, write):
            await at.run(read, write, at.create_initialization_options())

    anyio.run(serve)


def server(tools: "Tools") -> Any:
    """Return the server of tools; it answers one call at a time."""
    import anyio
    import mcp_types as types
    from mcp.server.lowlevel import Server

    from capplan.cli.main import os_error
    from capplan.cli.tools import schemas
    from capplan.shipped import own_version

    turn = anyio.Lock()  # an answer takes all processors

    async def list_tools(context: Any, params: Any) -> Any:
        return types.ListToolsResult(
            tools=[
                types.Tool(name=name, description=text, input_schema=schema)
                for name, (text, schema) in schemas().items()
            ]
        )

    async def call_tool(context: Any, params: Any) -> Any:
        ended = threading.Event()

        def progress(step: str, share: float | None = None) -> None:
            told = share or 0.0
            anyio.from_thread.run(context.session.report_progress, told, 1.0, step)

        def work() -> str:
            with contextlib.redirect_stdout(sys.stderr):
                return tools.call(
                    params.name, params.arguments or {}, progress, ended.is_set
                )

        async with turn:
            try:
                text, failed = await anyio.to_thread.run_sync(work), False
            except (CapplanError, OSError) as error:
                told = os_error(error) if isinstance(error, OSError) else str(error)
                text, failed = " ".join(told.split()), True
            except anyio.get_cancelled_exc_class():
                ended.set()
                raise
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)], is_error=failed
        )

    return Server(
        "capplan",
        version=own_version(),
        instructions=(
            "Capacity planning of LLM serving: GPUs, configuration and cost for a "
            "trace and latency limits. Ask plan first, then explain."
        ),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
