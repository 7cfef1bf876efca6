"""The report as a page and as a notebook."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import nbclient
import nbformat
import pytest

from stepscope.errors import UsageError
from stepscope.report import drawing, html, show
from stepscope.report.notebook import render_notebook
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.views.profiling_report import Report, choose_report_rules, make_report
from stepscope.views.profiling_report.blocks import Listing, Section, Table, Text
from tests.support.report_runs import two_gpus
from tests.support.shared_folder import SharedFolder

MAX_PAGE_BYTES = 800_000
"""Limit of the page, with its script."""
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)><!--\u2028&lt;$x$"


@pytest.fixture(scope="module")
def run(shared_folder: SharedFolder) -> Path:
    return shared_folder.make("reported-gpus", two_gpus)


@pytest.fixture(scope="module")
def report(run: Path) -> Report:
    return make_report(Run(open_run(run)), choose_report_rules())


def with_names(report: Report, name: str) -> Report:
    """Replace every user-controlled name of a report."""
    verdict = msgspec.structs.replace(report.verdict, headline=name, notes=[name])
    texts = [Text(text=name), Text(text=name, tone="missing"), Listing(items=[name])]
    section = Section(id="job", title=name, blocks=texts)
    return msgspec.structs.replace(
        report, run_id=name, command=name, verdict=verdict, notes=[name], sections=[section]
    )


# --- the page -------------------------------------------------------------------------------------


def payload_of(page: str) -> dict:
    match = re.search(r'<script type="application/json" id="payload">(.*?)</script>', page, re.S)
    assert match
    return json.loads(match[1])


def test_the_page_contains_its_payload_script_and_style(report: Report) -> None:
    page = html.render_html(report)
    assert payload_of(page) == json.loads(msgspec.json.encode(report))
    assert len(page.encode()) <= MAX_PAGE_BYTES
    assert page.count("<script") == page.count("</script>") == 3
    assert page.count("<style") == page.count("</style>") == 1
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", page.partition("<style>")[0])


def test_no_name_becomes_markup(report: Report) -> None:
    evil = with_names(report, EVIL)
    page = html.render_html(evil)
    assert page.count("<script") == page.count("</script>") == 3
    assert "<img" not in page.partition("<script>")[0]
    assert payload_of(page)["command"] == EVIL
    assert "<img" not in show(evil, "job").html + show(evil, "head").html


def test_without_the_bundle_the_error_names_the_fix(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unbuilt(name: str) -> str:
        raise FileNotFoundError(name)

    monkeypatch.setattr("stepscope.assets.read_web_asset", unbuilt)
    with pytest.raises(UsageError, match="This installation lacks the built web files"):
        html.render_html(report)


# --- in a notebook --------------------------------------------------------------------------------


@pytest.fixture(params=["pictures", "tables"])
def chart_form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run with Matplotlib, and without."""
    if request.param == "tables":
        monkeypatch.setattr(drawing, "find_spec", lambda name: None)
    return request.param


@pytest.mark.slow("draws every chart")
def test_sections_are_shown(report: Report, chart_form: str) -> None:
    for section in report.sections:
        fragment = show(report, section.id)._repr_html_()
        for block in section.blocks:
            if isinstance(block, Table):
                assert block.title.replace("'", "&#x27;") in fragment
        assert section.title in fragment
    fragment = show(report, "training").html
    assert ("<svg" in fragment) is (chart_form == "pictures")
    assert "Job duration by part" in show(report, "job").html
    assert "<h2>" in show(report, "verdict").html
    with pytest.raises(KeyError):
        show(report, "no-such-section")


@pytest.fixture
def executed(tmp_path: Path) -> Callable[[bytes], list]:
    """Run a notebook in a kernel and return the outputs of its code cells."""

    def execute(content: bytes) -> list:
        notebook = nbformat.reads(content.decode(), as_version=4)
        nbformat.validate(notebook)
        client = nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3")
        client.execute(cwd=str(tmp_path))
        return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]

    return execute


def errors_of(outputs: list[list[Any]]) -> list[Any]:
    return [out for cell in outputs for out in cell if out.output_type in {"error", "stream"}]


@pytest.mark.slow("starts a kernel")
@pytest.mark.filterwarnings("ignore")  # of the kernel's libraries
def test_the_notebook_executes(
    run: Path, executed: Callable[[bytes], list], tmp_path: Path
) -> None:
    settings = ["StepOutlier.stddev=2"]
    report = make_report(Run(open_run(run)), choose_report_rules(settings=settings))
    content = render_notebook(report, str(run), directory=tmp_path, settings=settings)
    assert str(run) not in content.decode()
    written = [
        "".join(output["data"]["text/html"])
        for cell in json.loads(content)["cells"]
        for output in cell.get("outputs", ())
    ]
    outputs = executed(content)
    fragments = [
        output.data["text/html"] for cell in outputs for output in cell if "data" in output
    ]
    headings = [re.findall(r"<h[12]>(.*?)</h[12]>", fragment)[0] for fragment in fragments]
    assert headings[2:] == [
        "Training job summary",
        "Job time",
        "System usage statistics",
        "Framework metrics summary",
        "Rules summary",
        "Analyzing the training loop",
    ]
    assert "stddev: 2" in fragments[-1]
    assert not errors_of(outputs)
    # The notebook holds what its cells would show.
    assert [re.findall(r"<h[12]>(.*?)</h[12]>", text)[0] for text in written] == headings
    plain = [
        [re.sub(r"<svg.*?</svg>", "", text, flags=re.S) for text in texts[1:]]
        for texts in (written, fragments)
    ]
    assert plain[0] == plain[1]  # pictures have random identifiers


@pytest.mark.extended("a second kernel; the cells are those of the other notebook")
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_of_an_empty_run_executes(
    tmp_path: Path, executed: Callable[[bytes], list]
) -> None:
    path = RunBuilder(tmp_path / "run").write()
    report = make_report(Run(open_run(path)), choose_report_rules())
    outputs = executed(render_notebook(report, str(path), directory=tmp_path))
    assert not errors_of(outputs)
