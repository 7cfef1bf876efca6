"""The timeline of a notebook: a real kernel runs the code, a real browser draws the widget.

In between is the protocol of Jupyter's widgets: what the page changes goes to the kernel as a
message of the widget's comm, and the answers of the kernel go to the page.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

import stepscope
from stepscope.assets import read_web_asset
from stepscope.testing.browser import chromium, collect_problems
from tests.support.access_run import draw
from tests.support.browsed import IN_A_BROWSER

manager = pytest.importorskip("jupyter_client.manager")
pytest.importorskip("anywidget", reason="anywidget is not installed")
pytestmark = [
    *IN_A_BROWSER,
    pytest.mark.seed("DBU-08"),
    pytest.mark.extended("a kernel and a browser; the widget is in tests/unit/access"),
]
KERNEL_TIMEOUT_S = 120
STATE = "import json; print(json.dumps(chart.widget.get_state(['payload', 'selection', 'events'])))"
EVENTS = "import json; print(json.dumps([chart.selection, chart.events().rows()]))"
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>notebook</title>
<link rel="icon" href="data:,"><style>%(style)s</style><div id="widget"></div>
<script type="module">
const source = new Blob([%(script)s], { type: "text/javascript" });
const { default: widget } = await import(URL.createObjectURL(source));
const state = %(state)s, listeners = [];
const model = {
  get: (name) => state[name],
  set: (name, value) => { state[name] = value; },
  on: (event, listener) => listeners.push([event, listener]),
  off: () => undefined,
  save_changes: async () => {
    const changes = await window.sendToKernel({ selection: state.selection });
    for (const [name, value] of [["selection", state.selection], ...Object.entries(changes)]) {
      state[name] = value;
      for (const [event, listener] of listeners) if (event === `change:${name}`) listener();
    }
  },
};
widget.render({ model, el: document.getElementById("widget") });
</script></html>
"""


class Kernel:
    """A kernel as notebooks start it."""

    def __init__(self) -> None:
        self._manager, self._client = manager.start_new_kernel(
            startup_timeout=KERNEL_TIMEOUT_S,
            env=dict(os.environ),
            extra_arguments=["--colors=NoColor"],
        )

    def execute(self, code: str) -> str:
        """Execute a cell and return what it prints."""
        output: list[str] = []

        def read(message: dict[str, Any]) -> None:
            if message["msg_type"] == "error":
                raise AssertionError("\n".join(message["content"]["traceback"]))
            output.append(message["content"].get("text", ""))

        self._client.execute_interactive(code, timeout=KERNEL_TIMEOUT_S, output_hook=read)
        return "".join(output)

    def update(self, model: str, state: dict[str, Any]) -> dict[str, Any]:
        """Send a change of a widget's state, and return the changes with which it answers."""
        data = {"method": "update", "state": state, "buffer_paths": []}
        content = {"comm_id": model, "data": data}
        request = self._client.session.msg("comm_msg", content)
        self._client.shell_channel.send(request)
        changes: dict[str, Any] = {}
        while True:
            message = self._client.get_iopub_msg(timeout=KERNEL_TIMEOUT_S)
            if message["parent_header"].get("msg_id") != request["msg_id"]:
                continue
            if message["msg_type"] == "comm_msg":
                changes |= message["content"]["data"].get("state", {})
            if message["content"].get("execution_state") == "idle":
                return changes

    def end(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    started = Kernel()
    yield started
    started.end()


@pytest.fixture
def page() -> Iterator[Page]:
    with chromium() as browser:
        opened: Browser = browser
        page = opened.new_page(viewport={"width": 1000, "height": 800})
        problems = collect_problems(
            page, lambda request: request.url.startswith(("file:", "blob:"))
        )
        yield page
        assert problems == []


def test_a_dragged_range_returns_its_events(kernel: Kernel, page: Page, tmp_path: Path) -> None:
    path = draw(tmp_path / "run").write()
    kernel.execute(f"import sys; sys.path[:0] = {[*filter(None, sys.path)]!r}")
    kernel.execute(f"import stepscope; run = stepscope.open({str(path)!r}); chart = run.timeline()")
    model = kernel.execute("print(chart.widget.model_id)").strip()
    state = kernel.execute(STATE)
    document = PAGE % {
        "style": read_web_asset("timeline_widget.css"),
        "script": json.dumps(read_web_asset("timeline_widget.js")).replace("</", "<\\/"),
        "state": state,
    }
    (tmp_path / "notebook.html").write_text(document)
    page.expose_function("sendToKernel", lambda changes: kernel.update(model, changes))
    page.goto((tmp_path / "notebook.html").as_uri())
    summary = page.locator(".stepscope-timeline p")
    expect(summary).to_contain_text("Drag over the chart")
    labels = page.locator(".stepscope-timeline g text:first-child")
    expect(labels).to_have_text(["cpu_busy_ratio", "gpu_busy_ratio 0", "gpu_busy_ratio 1",
                                 "memory_used_bytes"])  # fmt: skip

    box = page.locator(".stepscope-timeline svg").bounding_box()
    assert box is not None
    scale = box["width"] / 900  # of the drawing, whose plot is from 190 to 880
    first, last = 190 + 69, 190 + 138
    page.mouse.move(box["x"] + first * scale, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + last * scale, box["y"] + 40, steps=4)
    page.mouse.up()
    expect(summary).to_contain_text("Selected")

    selection, events = json.loads(kernel.execute(EVENTS))
    duration_ns = json.loads(state)["payload"]["duration_ns"]
    run = stepscope.open(path)
    offsets = [(time - run.start_ns) / duration_ns for time in selection]
    assert offsets == pytest.approx([0.1, 0.2], abs=0.002)
    start, end = selection
    assert events == json.loads(json.dumps(run.framework(start=start, end=end).rows()))
    assert events
    expect(summary).to_contain_text(f"{len(events)} events")
    expect(page.locator(".stepscope-timeline tbody tr")).to_have_count(len(events))
    forward = sum(event["kind"] == "forward" for event in events)
    cells = page.locator(".stepscope-timeline tbody td:nth-child(2)", has_text="forward")
    expect(cells).to_have_count(forward)

    page.locator(".stepscope-timeline svg").dblclick(position={"x": box["width"] / 2, "y": 20})
    expect(summary).to_contain_text("Drag over the chart")
    assert kernel.execute("print(chart.selection)").strip() == "None"
