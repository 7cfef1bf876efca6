"""`stepscope ui s3://…` as users start it."""

from __future__ import annotations

import http.client
import json
import os
import signal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from stepscope.testing import RunBuilder
from tests.support.buckets import TestBucket
from tests.support.under_stepscope import TIMEOUT_S, bearer_of, serving

pytestmark = pytest.mark.extended("another server; reading from a bucket is in tests/unit/server")


def get(url: str, path: str, **query: str) -> tuple[int, Any]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", f"{path}?{urlencode(query)}", headers=bearer_of(url))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_the_runs_below_a_url(tmp_path: Path, bucket: TestBucket) -> None:
    run = RunBuilder(tmp_path / "job", sampling_ms=100)
    run.rank(0).draw("wait 60 | forward 12 | backward 20 | optimizer 8", 40)
    location = run.write()
    for key in ("team/runs/a", "team/runs/b/c", "other/d"):
        bucket.put_run(location, key)
    with serving(bucket.url("team/runs")) as (url, process):
        status, listed = get(url, "/api/jobs")
        assert status == 200
        assert {job["id"] for job in listed["jobs"]} == {"a", "b/c"}
        assert listed["root"] == bucket.url("team/runs")
        status, steps = get(url, "/api/views/steps", run="b/c")
        assert status == 200
        assert len(steps["ranks"]) == 1
        assert get(url, "/api/compare", base="a", run="b/c")[0] == 200
        assert get(url, "/api/views/steps", run="../../other/d")[0] == 404
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0
        messages = process.stderr.read()
        assert f"the runs below {bucket.url('team/runs')}. Ctrl-C" in messages
        assert "Traceback" not in messages
