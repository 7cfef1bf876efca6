"""The tools by the official SDK of the Model Context Protocol."""

from __future__ import annotations

import functools
from collections.abc import Callable

from stepscope import errors
from stepscope._version import __version__
from stepscope.mcp_server.answers import Answers
from stepscope.run import UnreachableError

INSTRUCTIONS = (
    "Recorded training jobs: what they wait for, and what fixing it would save. Call list_runs, "
    "then diagnose; show_view and sql have details. Times are nanoseconds unless a name "
    "says otherwise. Cite numbers with the id `at` of their row and the name of the field; "
    "explain resolves ids."
)


def serve(location: str) -> None:
    """Serve the run at a location, or the runs below it, until standard input ends.

    Raises:
        UsageError: the extra `mcp` is not installed, or there is no such directory.
    """
    sdk = errors.require("mcp.server.mcpserver", extra="mcp")
    tool_error = errors.require("mcp.server.mcpserver.exceptions", extra="mcp").ToolError
    server = sdk.MCPServer(
        "stepscope", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING"
    )
    for tool in Answers(location).tools:
        server.add_tool(_explained(tool, tool_error), structured_output=False)
    server.run("stdio")


def _explained(tool: Callable[..., str], tool_error: type[Exception]) -> Callable[..., str]:
    """Give the client the sentence of an error; the SDK withholds that of others."""

    @functools.wraps(tool)
    def answer(*arguments: object, **options: object) -> str:
        try:
            return tool(*arguments, **options)
        except (errors.StepscopeError, UnreachableError, OSError) as error:
            raise tool_error(errors.explain_os_error(error)) from error

    return answer
