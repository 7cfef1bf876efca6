"""What the server says is what the command line prints."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from stepscope.cli import root as command_line
from stepscope.views import VIEWS
from stepscope.views.jobs import Jobs
from tests.support.served import Served

RUNS = ("team/job", "recorded")


def shown(run: Path, view: str, *options: str) -> Any:
    """`stepscope show RUN VIEW --json`; the error where it has none."""
    done = CliRunner().invoke(command_line, ["show", str(run), view, "--json", *options])
    return done.exception if done.exit_code else json.loads(done.stdout)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("view", list(VIEWS))
def test_every_view_is_what_show_prints(server: Served, runs: Path, run: str, view: str) -> None:
    expected = shown(runs / run, view)
    answer = server.view(view, run)
    if isinstance(expected, Exception):
        assert answer.status == 400
        assert answer.error == str(expected)
    else:
        assert answer.status == 200, answer.body
        assert answer.headers["content-type"] == "application/json"
        assert answer.json == expected


@pytest.mark.parametrize(
    ("view", "given", "flags"),
    [
        ("kernels", {"top": "1", "by": "properties"}, ["--top", "1", "--by", "properties"]),
        ("launches", {"bucket_ns": "10us"}, ["--bucket", "10us"]),
        ("launches", {"bucket_ns": "10000"}, ["--bucket", "10us"]),
        ("gpu-time", {"carry_over": "drop"}, ["--carry-over", "drop"]),
    ],
)
def test_options_are_those_of_show(
    server: Served, runs: Path, view: str, given: dict[str, str], flags: list[str]
) -> None:
    answer = server.view(view, "recorded", **given)
    assert answer.json == shown(runs / "recorded", view, *flags)


@pytest.mark.parametrize(
    ("view", "given", "sentence"),
    [
        ("kernels", {"top": "many"}, "--top: 'many' cannot be its value"),
        ("overview", {"top": "1"}, "does not look at --top"),
        ("kernels", {"colour": "red"}, "There is no option colour"),
        ("launches", {"bucket_ns": "-3s"}, "is no duration"),
    ],
)
def test_an_option_that_cannot_be(
    server: Served, view: str, given: dict[str, str], sentence: str
) -> None:
    answer = server.view(view, "recorded", **given)
    assert answer.status == 400
    assert sentence in answer.error


def test_a_view_that_there_is_not(server: Served) -> None:
    answer = server.view("colours", "recorded")
    assert answer.status == 404
    assert "There is no view 'colours'; there are overview" in answer.error
    assert server.ask("/api/views/overview").status == 400
    assert server.ask("/api/nonsense").status == 404
    assert server.ask("/api/views/overview", method="DELETE").status == 405


def test_a_payload_that_the_browser_holds_is_not_made_again(server: Served) -> None:
    first = server.view("overview", "recorded")
    tag = first.headers["etag"]
    again = server.ask(
        "/api/views/overview", run="recorded", headers={"If-None-Match": f'W/"other", {tag}'}
    )
    assert (again.status, again.body) == (304, b"")
    other = server.ask("/api/views/overview", run="team/job", headers={"If-None-Match": tag})
    assert other.status == 200


def test_the_list_of_jobs(server: Served, runs: Path) -> None:
    jobs = msgspec.json.decode(server.ask("/api/jobs").body, type=Jobs)
    assert jobs.root == str(runs)
    assert {job.id: job.status for job in jobs.jobs} == {
        "team/job": "Completed",
        "recorded": "Imported",
    }


def test_verdicts_come_by_themselves(server: Served) -> None:
    deadline = time.monotonic() + 30
    while True:
        jobs = msgspec.json.decode(server.ask("/api/jobs").body, type=Jobs)
        if not jobs.pending_count:
            break
        assert time.monotonic() < deadline
        time.sleep(0.1)
    verdicts = {job.id: job.verdict for job in jobs.jobs}
    assert verdicts["team/job"] is not None
    assert verdicts["team/job"].words == "waits for data"
    shown_verdict = server.view("overview", "team/job").json["verdict"]
    assert verdicts["team/job"].headline == shown_verdict["headline"]
    assert verdicts["team/job"].share_ratio == shown_verdict["share_ratio"]


def test_the_document_of_the_api_is_made_from_the_views(server: Served) -> None:
    document = server.ask("/api/openapi.json").json
    assert document["openapi"].startswith("3.1")
    for name, view in VIEWS.items():
        operation = document["paths"][f"/api/views/{name}"]["get"]
        asked = [each["name"] for each in operation["parameters"]]
        assert asked == ["run", *view.uses]
        answer = operation["responses"]["200"]["content"]["application/json"]["schema"]
        assert (
            answer["$ref"].removeprefix("#/components/schemas/")
            in (document["components"]["schemas"])
        )
    references = set(_references(document))
    assert references <= {
        f"#/components/schemas/{name}" for name in document["components"]["schemas"]
    }
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
        for each in node:
            yield from _references(each)


def test_two_runs_beside_each_other(server: Served, runs: Path) -> None:
    done = CliRunner().invoke(
        command_line, ["compare", str(runs / "team/job"), str(runs / "recorded"), "--json"]
    )
    assert done.exit_code == 0, done.output
    answer = server.ask("/api/compare", base="team/job", run="recorded")
    assert answer.json == json.loads(done.stdout)


def test_a_run_is_opened_and_looked_at(server: Served) -> None:
    for _ in range(2):
        assert server.ask("/api/session", run="recorded").status == 200
        assert server.view("timeline", "recorded").status == 200
