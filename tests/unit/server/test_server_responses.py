"""Responses of the server, which equal the output of the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from stepscope import quantities
from stepscope.cli import root as command_line
from stepscope.store import open_run
from stepscope.views import VIEWS, describe_saving, describe_verdict
from stepscope.views.job.jobs import Jobs
from tests.support.command import without_ids
from tests.support.served import Served
from tests.support.waiting import wait_until

RUNS = ("team/job", "recorded")


def show(run: Path, view: str, *options: str) -> Any:
    """Run `stepscope show RUN VIEW --json`; returns the payload or the error."""
    result = CliRunner().invoke(command_line, ["show", str(run), view, "--json", *options])
    return result.exception if result.exit_code else without_ids(json.loads(result.stdout))


def read_report(page: str) -> Any:
    """Return the payload of a report's page, without the time at which it was made."""
    _, _, rest = page.partition('id="payload">')
    payload = json.loads(rest.partition("</script>")[0])
    del payload["made_at"]
    return payload


@pytest.mark.seed("PTP-19")
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("view", list(VIEWS))
def test_every_view_equals_the_output_of_show(
    server: Served, runs: Path, run: str, view: str
) -> None:
    expected = show(runs / run, view)
    response = server.view(view, run)
    if isinstance(expected, Exception):
        assert response.status == 400
        assert response.error == str(expected)
    else:
        assert response.status == 200, response.body
        assert response.headers["content-type"] == "application/json"
        assert response.json == expected


@pytest.mark.seed("PTP-19")
@pytest.mark.parametrize(
    ("view", "query", "flags"),
    [
        ("kernels", {"top": "1", "by": "properties"}, ["--top", "1", "--by", "properties"]),
        ("launches", {"bucket_ns": "10us"}, ["--bucket", "10us"]),
        ("launches", {"bucket_ns": "10000"}, ["--bucket", "10us"]),
        ("gpu-time", {"carry_over": "drop"}, ["--carry-over", "drop"]),
    ],
)
def test_options_are_those_of_show(
    server: Served, runs: Path, view: str, query: dict[str, str], flags: list[str]
) -> None:
    response = server.view(view, "recorded", **query)
    assert response.json == show(runs / "recorded", view, *flags)


@pytest.mark.parametrize(
    ("view", "query", "sentence"),
    [
        ("kernels", {"top": "many"}, "--top: invalid value 'many'"),
        ("overview", {"top": "1"}, "does not accept --top"),
        ("kernels", {"colour": "red"}, "There is no option colour"),
        ("launches", {"bucket_ns": "-3s"}, "is not a duration"),
    ],
)
def test_an_invalid_option(server: Served, view: str, query: dict[str, str], sentence: str) -> None:
    response = server.view(view, "recorded", **query)
    assert response.status == 400
    assert sentence in response.error


def test_a_query_equals_the_output_of_sql(server: Served, runs: Path) -> None:
    query = "SELECT name, count(*) AS n FROM operators GROUP BY ALL ORDER BY n DESC, name"
    result = CliRunner().invoke(command_line, ["sql", str(runs / "recorded"), query, "--json"])
    response = server.post("/api/sql", {"run": "recorded", "query": query})
    assert response.json == without_ids(json.loads(result.stdout))
    largest = "SELECT 9007199254740992 AS exact, 9007199254740993 AS rounded_in_a_browser"
    response = server.post("/api/sql", {"run": "recorded", "query": largest})
    assert response.json["rows"] == [[2**53, str(2**53 + 1)]]
    for refused in ("FROM read_text('/etc/passwd')", "COPY spans TO '/dev/null'", "FROM nothing"):
        response = server.post("/api/sql", {"run": "recorded", "query": refused})
        assert response.status == 400
        assert "query" in response.error


def test_a_view_that_does_not_exist(server: Served) -> None:
    response = server.view("colours", "recorded")
    assert response.status == 404
    assert "There is no view 'colours'. Views: overview" in response.error
    assert server.request("/api/views/overview").status == 400
    assert server.request("/api/nonsense").status == 404
    assert server.request("/api/views/overview", method="DELETE").status == 405


def test_a_payload_in_the_cache_of_the_browser_is_not_computed_again(server: Served) -> None:
    first = server.view("overview", "recorded")
    tag = first.headers["etag"]
    again = server.request(
        "/api/views/overview", run="recorded", headers={"If-None-Match": f'W/"other", {tag}'}
    )
    assert (again.status, again.body) == (304, b"")
    team_job = server.request("/api/views/overview", run="team/job", headers={"If-None-Match": tag})
    assert team_job.status == 200


def test_the_list_of_jobs(server: Served, runs: Path) -> None:
    jobs = msgspec.json.decode(server.request("/api/jobs").body, type=Jobs)
    assert jobs.root == str(runs)
    assert {job.id: job.status for job in jobs.jobs} == {
        "team/job": "Completed",
        "recorded": "Imported",
    }
    order = [(-job.created_ms, job.id) for job in jobs.jobs]
    assert order == sorted(order)
    assert (jobs.is_partial, jobs.unread_count) == (False, 0)


def test_verdicts_are_computed_in_the_background(server: Served) -> None:
    def finished_jobs() -> Jobs | None:
        jobs = msgspec.json.decode(server.request("/api/jobs").body, type=Jobs)
        return None if jobs.pending_count else jobs

    jobs = wait_until(finished_jobs)
    verdicts = {job.id: job.verdict for job in jobs.jobs}
    assert verdicts["team/job"] is not None
    assert verdicts["team/job"].words == "waits for data"
    overview = server.view("overview", "team/job").json["verdict"]
    assert verdicts["team/job"].headline == overview["headline"]
    assert verdicts["team/job"].share_ratio == overview["share_ratio"]
    name = server.request("/api/name?run=team/job").json
    share = quantities.percent(overview["share_ratio"])
    assert name["headline"].startswith(f"Bottleneck: data pipeline, {share} of step time")
    assert name["advice"].startswith(f"{verdicts['team/job'].fix}: saves ")
    loop = "step and evaluation wall time"
    short = msgspec.structs.replace(verdicts["team/job"], share_of=loop, saving_of=loop)
    for sentence in (describe_verdict(short), describe_saving(short)):
        assert " of step and evaluation time" in str(sentence)


@pytest.mark.seed("PTP-19")
def test_the_openapi_document_covers_all_views(server: Served) -> None:
    document = server.request("/api/openapi.json").json
    assert document["openapi"].startswith("3.1")
    for name, view in VIEWS.items():
        operation = document["paths"][f"/api/views/{name}"]["get"]
        names = [parameter["name"] for parameter in operation["parameters"]]
        assert names == ["run", *view.uses]
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        component = schema["$ref"].removeprefix("#/components/schemas/")
        assert component in document["components"]["schemas"]
    references = set(_references(document))
    assert references <= {
        f"#/components/schemas/{name}" for name in document["components"]["schemas"]
    }
    assert document["paths"]["/api/views/gpu-time"]["get"]["summary"] == "GPU time"
    label = document["components"]["schemas"]["TraceGpuTime"]["properties"]["exposed_comm_ns"]
    assert (label["title"], label["x-unit"]) == ("exposed communication", "ns")
    assert "post" in document["paths"]["/api/capture"]
    assert "get" in document["paths"]["/api/capture"]


def _references(node: Any) -> Any:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            else:
                yield from _references(value)
    elif isinstance(node, list):
        for item in node:
            yield from _references(item)


def test_a_comparison_of_two_runs(server: Served, runs: Path) -> None:
    result = CliRunner().invoke(
        command_line, ["compare", str(runs / "team/job"), str(runs / "recorded"), "--json"]
    )
    assert result.exit_code == 0, result.output
    response = server.request("/api/compare", base="team/job", run="recorded")
    assert response.json == without_ids(json.loads(result.stdout))


def test_all_runs_are_added_up(server: Served, runs: Path) -> None:
    server.request("/api/fleet")  # stores the summaries
    result = CliRunner().invoke(command_line, ["fleet", str(runs), "--json", "--by", "week"])
    assert result.exit_code == 0, result.output
    assert server.request("/api/fleet", by="week").json == json.loads(result.stdout)
    assert server.request("/api/fleet", by="x").status == 400


def test_a_timeline_is_requested_while_it_is_read_ahead(server: Served) -> None:
    for _ in range(2):
        assert server.request("/api/session", run="recorded").status == 200
        assert server.view("timeline", "recorded").status == 200


@pytest.mark.parametrize("run", RUNS)
def test_the_report_is_a_page_to_keep(server: Served, runs: Path, run: str, tmp_path: Path) -> None:
    response = server.request("/api/report", run=run)
    assert (response.status, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    name = run.replace("/", "-")
    assert response.headers["content-disposition"] == (f'attachment; filename="{name}-report.html"')
    path = tmp_path / "report.html"
    result = CliRunner().invoke(command_line, ["report", str(runs / run), "-o", str(path)])
    assert result.exit_code == 0, result.output
    assert read_report(response.body.decode()) == read_report(path.read_text())


def test_the_report_of_an_unknown_run(server: Served) -> None:
    response = server.request("/api/report", run="absent")
    assert response.status == 404
    assert "absent" in response.error


def test_prometheus_scrapes_the_figures_of_all_runs(server: Served, runs: Path) -> None:
    shutil.copytree(runs / "team" / "job", runs / "team" / "copy")
    response = server.request("/metrics")
    assert response.status == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(response.body.decode()))
    scraped = {sample.labels["run"] for family in families for sample in family.samples}
    assert len(scraped) == len(RUNS)
    for family in families:
        series = [tuple(sorted(sample.labels.items())) for sample in family.samples]
        assert len(set(series)) == len(series), f"{family.name} of the copy"
    shutil.rmtree(runs / "team" / "copy")
    one = server.request("/metrics?run=team/job")
    labels = {
        sample.labels["run"]
        for family in text_string_to_metric_families(one.body.decode())
        for sample in family.samples
    }
    assert labels == {open_run(runs / "team" / "job").info.run_id}
    assert server.request("/metrics?run=nothing").status == 404
