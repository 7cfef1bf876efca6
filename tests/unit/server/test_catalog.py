"""Which directory a name means: always one below the served directory, or none."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.errors import NotARunError, UsageError
from stepscope.server.catalog import DirectoryCatalog, RunGoneError, served_root
from stepscope.store import revision_of
from tests.support.served import Served, serving
from tests.support.served_runs import draw_job, import_trace, recording

OUTSIDE = "outside"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A served directory with a run, beside one that is nobody's business."""
    served = tmp_path / "served"
    draw_job(served / "a" / "run", 3)
    draw_job(tmp_path / OUTSIDE, 3)
    return served


@pytest.fixture
def fresh(place: Path) -> Iterator[Served]:
    with serving(place) as served:
        yield served


def ids(place: Path) -> set[str]:
    return {run.id for run in DirectoryCatalog(place.resolve()).listing().runs}


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "a/../../outside",
        "a/run/../../../outside",
        "/etc",
        "..",
        "a//run",
        "a/./run",
        "./a/run",
        "a/run/",
        "",
        "a\0run",
        "a/run\0",
        "%2e%2e/outside",
        "..%2foutside",
        "..\\outside",
        "a" * 100_000,
        "a/run/run.json",
        "no/such",
        "\ud800",
    ],
)
def test_names_that_mean_nothing(place: Path, name: str) -> None:
    with pytest.raises(NotARunError) as caught:
        DirectoryCatalog(place.resolve()).locate(name)
    assert not isinstance(caught.value, RunGoneError)
    assert len(str(caught.value)) < 1000


def test_names_that_mean_nothing_over_http(fresh: Served, place: Path) -> None:
    outside = place.parent / OUTSIDE
    for name in ("../outside", str(outside), "a/%2e%2e/../outside", "a%00", "a\0"):
        answer = fresh.view("overview", name)
        assert answer.status == 404
        assert "drawn" not in answer.body.decode()
    # Encoded by hand, once and twice.
    for query in ("run=%2e%2e%2foutside", "run=%252e%252e%252foutside", "run=..%5coutside"):
        assert fresh.ask(f"/api/views/overview?{query}").status == 404


def test_links_that_leave_the_directory(place: Path) -> None:
    (place / "link").symlink_to(place.parent / OUTSIDE)
    (place / "up").symlink_to(place.parent)
    (place / "a" / "inside").symlink_to(place / "a" / "run")
    (place / "a" / "circle").symlink_to(place)
    (place / "loop").symlink_to(place / "loop")
    assert ids(place) == {"a/run"}
    catalog = DirectoryCatalog(place.resolve())
    for name in ("link", "up/outside", "loop"):
        with pytest.raises(NotARunError):
            catalog.locate(name)
    assert catalog.locate("a/inside") == str(place / "a" / "run")


def test_a_run_with_a_link_in_it_is_not_opened(fresh: Served, place: Path) -> None:
    node = next((place / "a" / "run" / "tables" / "spans").iterdir())
    (node / "00000009-00000009.parquet").symlink_to("/etc/passwd")
    answer = fresh.view("overview", "a/run")
    assert answer.status == 400
    assert "symbolic link" in answer.error


def test_a_manifest_that_is_a_link_makes_no_run(place: Path) -> None:
    (place / "b").mkdir()
    (place / "b" / "run.json").symlink_to(place.parent / OUTSIDE / "run.json")
    assert ids(place) == {"a/run"}
    with pytest.raises(NotARunError):
        DirectoryCatalog(place.resolve()).locate("b")


def test_a_run_itself_can_be_served(place: Path) -> None:
    run = place / "a" / "run"
    with serving(run) as served:
        assert [job["id"] for job in served.ask("/api/jobs").json["jobs"]] == ["."]
        assert served.view("overview", ".").status == 200


def test_what_is_below_a_run_or_hidden_is_no_run(place: Path) -> None:
    shutil.copytree(place / "a" / "run", place / "a" / "run" / "raw" / "inner")
    shutil.copytree(place / "a" / "run", place / ".trash" / "run")
    assert ids(place) == {"a/run"}


def test_a_run_that_disappears(fresh: Served, place: Path) -> None:
    assert fresh.view("overview", "a/run").status == 200
    shutil.rmtree(place / "a" / "run")
    answer = fresh.view("overview", "a/run")
    assert answer.status == 410
    assert answer.error == "The run 'a/run' has disappeared."
    assert fresh.ask("/api/jobs").json["jobs"] == []


def test_a_run_whose_tables_disappear(fresh: Served, place: Path) -> None:
    """The list of files is older than what is found."""
    assert fresh.view("overview", "a/run").status == 200
    shutil.rmtree(place / "a" / "run" / "tables")
    assert fresh.view("steps", "a/run").status == 200


def test_a_run_that_is_damaged_does_not_hide_the_others(fresh: Served, place: Path) -> None:
    (place / "broken").mkdir()
    (place / "broken" / "run.json").write_text('{"schema_version": 1, "run_id": 7}')
    (place / "newer").mkdir()
    (place / "newer" / "run.json").write_text('{"schema_version": 999}')
    jobs = {job["id"]: job["problem"] for job in fresh.ask("/api/jobs").json["jobs"]}
    assert jobs["a/run"] is None
    assert "run.json is damaged" in jobs["broken"]
    assert "Upgrade stepscope" in jobs["newer"]
    assert fresh.view("overview", "broken").status == 400
    assert "schema version 999" in fresh.view("overview", "newer").error


def test_names_of_directories_that_mean_something_elsewhere(fresh: Served, place: Path) -> None:
    names = ["<img src=x onerror=alert(1)>", "a?b#c&d=e", "ünï %41", "'; DROP TABLE--", "$(id)"]
    for name in names:
        shutil.copytree(place / "a" / "run", place / name)
    shutil.copytree(place / "a" / "run", place / "\udcff\udcfe")  # bytes that are no UTF-8
    listed = fresh.ask("/api/jobs").json
    assert {job["id"] for job in listed["jobs"]} == {*names, "a/run"}
    assert listed["notes"] == ["A run whose name is no text was left out."]
    for name in names:
        assert fresh.view("overview", name).status == 200


def test_a_million_letters_in_a_name(place: Path) -> None:
    """A kernel's name, and one that means something in HTML."""
    long = "k" * 1_000_000
    import_trace(place / "long", recording(f"<script>alert(1)</script>{long}"))
    with serving(place) as served:
        answer = served.view("kernels", "long")
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_directories_that_cannot_be_served(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no directory"):
        served_root(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="is no URL of a bucket"):
        served_root("s3://")


def test_the_revision_is_another_one_for_every_change(place: Path) -> None:
    run = place / "a" / "run"
    seen = {revision_of(run)}
    assert {revision_of(run)} == seen
    node, findings, spans = run / "nodes" / "n0", run / "findings", run / "tables" / "spans" / "n0"
    changes = [
        (node / "new").touch,
        lambda: (node / "new").rename(node / "status.json"),
        findings.mkdir,
        (findings / "rules.json").touch,
        (spans / "x.parquet").touch,
        (spans / "x.parquet").unlink,
    ]
    for number, change in enumerate(changes, 2):
        time.sleep(0.01)  # as finely as the file system tells times
        change()
        seen.add(revision_of(run))
        assert len(seen) == number
    shutil.rmtree(run)
    with pytest.raises(NotARunError):
        revision_of(run)


def test_the_revision_is_another_one_when_nothing_comes_any_more(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A monitor that is silent is news."""
    run = place / "a" / "run"
    before, now = revision_of(run), time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 20 * 10**9)
    assert revision_of(run) == before
    monkeypatch.setattr(time, "time_ns", lambda: now + 40 * 10**9)
    assert revision_of(run) != before
