"""`stepscope mcp` by the client of the SDK: five questions, each in at most three calls."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp")

from mcp import ClientSession, StdioServerParameters, stdio_client

from stepscope.errors import UsageError
from stepscope.mcp_server.answers import encode
from stepscope.testing import RunBuilder
from tests.support.cause_runs import COMPUTE, draw_steps, draw_too_few_workers
from tests.support.command import run_command
from tests.support.kineto_files import trace, training

Ask = Callable[..., Coroutine[Any, Any, dict[str, Any]]]
pytestmark = pytest.mark.slow("starts a server")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a slow run, a faster one, one with a late rank, and one of traces."""
    root = tmp_path_factory.mktemp("agents")
    for name, draw in (("slow", draw_too_few_workers), ("fast", draw_steps(COMPUTE))):
        run = RunBuilder(root / name, cores=4)
        draw(run)
        run.write()
    late = RunBuilder(root / "late")
    for number in range(3):
        wait, exchange = (21, 19) if number == 1 else (10, 30)
        late.rank(number, node=f"n{number}").draw(
            f"wait {wait} | forward 30 | communication {exchange} | optimizer 10", 60
        )
    late.write()
    (root / "trace.json").write_bytes(trace(*training()))
    assert run_command(root, "import", "trace.json", "-o", "traced").returncode == 0
    return root


def converse(root: Path, conversation: Callable[[Ask], Coroutine[Any, Any, int]]) -> int:
    """Start a server and let a client ask; return what the conversation does."""

    async def run() -> int:
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "stepscope", "mcp", str(root)]
        )
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()

            async def ask(tool: str, **arguments: Any) -> dict[str, Any]:
                result = await session.call_tool(tool, arguments)
                text = "".join(part.text for part in result.content)  # type: ignore[union-attr]
                assert len(text) < 100_000
                return {"error": text} if result.is_error else json.loads(text)

            return await conversation(ask)

    return anyio.run(run)


def test_five_questions(runs: Path) -> None:
    async def talk(ask: Ask) -> int:
        listed = await ask("list_runs")
        assert {run["id"] for run in listed["runs"]} == {"slow", "fast", "late", "traced"}
        # Why is this run slow? What would more workers save?
        verdict = await ask("diagnose", run="slow")
        assert (verdict["suspect"], verdict["share_ratio"]) == (
            "data_pipeline",
            pytest.approx(0.6, abs=0.01),
        )
        fix = next(fix for fix in verdict["fixes"] if "worker" in fix["title"].lower())
        number = await ask("explain", run="slow", at=f"{fix['at']}/prediction/saving_ratio")
        assert number["value"] == fix["prediction"]["saving_ratio"] > 0
        assert number["command"] == "stepscope diagnose RUN --json"
        # What changed between A and B?
        change = await ask("compare", base="slow", run="fast")
        mean = next(figure for figure in change["steps"]["figures"] if figure["name"] == "mean")
        assert mean["change_ratio"] == pytest.approx(40 / 100 - 1, abs=0.01)
        assert mean["at"] == "compare?base=slow/steps/figures/name=mean"
        # Which rank is late, and in which line?
        late = await ask("show_view", run="late", view="ranks")
        assert late["sentence"].startswith("Rank 1 is late in 100% of steps")
        # Which kernels lack Tensor Cores?
        lacking = await ask(
            "sql",
            run="traced",
            query="SELECT name, total_ns FROM views.kernels WHERE NOT tensor_cores",
        )
        kernels = await ask("show_view", run="traced", view="kernels")
        rows = [row for one in kernels["traces"] for row in one["kernels"]]
        assert lacking["rows"] == [
            [row["name"], row["total_ns"]] for row in rows if row["tensor_cores"] is False
        ]
        resolved = await ask("explain", run="traced", at=f"{rows[0]['at']}/total_ns")
        assert (resolved["value"], resolved["unit"]) == (rows[0]["total_ns"], "ns")
        return 0

    converse(runs, talk)


def test_nothing_else_is_read(runs: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    job = RunBuilder(outside)
    job.rank().draw("wait 5 | forward 5", 10)
    job.write()

    async def talk(ask: Ask) -> int:
        questions: list[tuple[str, dict[str, Any]]] = [
            ("diagnose", {"run": str(outside)}),
            ("diagnose", {"run": "../../etc"}),
            ("compare", {"base": str(outside), "run": "slow"}),
            ("explain", {"run": "slow", "at": f"compare?base={outside}/headline"}),
            ("sql", {"run": "slow", "query": "FROM read_text('/etc/passwd')"}),
            ("sql", {"run": "slow", "query": "COPY spans TO '/dev/null'"}),
            ("show_view", {"run": "slow", "view": "nothing"}),
            ("explain", {"run": "slow", "at": "nothing/here"}),
        ]
        for tool, arguments in questions:
            answer = await ask(tool, **arguments)
            assert " " in answer["error"], (tool, arguments)
        endless = "SELECT 'x' || range AS text, [range] FROM range(1000000)"
        answer = await ask("sql", run="slow", query=endless)
        assert answer["is_cut"]
        matches = await ask("search_timeline", run="traced", text="gemm")
        assert matches["at"].startswith("timeline-search?name=gemm")
        assert (await ask("check_rules", run="slow"))["at"] == "rules"
        return 0

    converse(runs, talk)


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    done = run_command(tmp_path, "mcp", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "stepscope: mcp is not installed: pip install 'stepscope[mcp]', or use `stepscope show RUN "
        "VIEW --json`.\n"
    )


def test_answers_are_limited() -> None:
    rows = [{"text": "x" * 500, "number": number} for number in range(1000)]
    answer = json.loads(encode({"rows": rows, "share": math.nan}))
    assert (answer["share"], answer["rows"]) == (None, rows[:50])
    assert answer["cut"] == ["rows: 50 of 1000"]
    expected = (
        "The answer is too large for an agent. Ask for a part of it by its id with explain, or"
    )
    with pytest.raises(UsageError, match=f"{expected} use sql."):
        encode({str(number): "x" * 1000 for number in range(100)})
