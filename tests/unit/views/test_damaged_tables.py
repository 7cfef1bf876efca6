"""Views of an imported run of which one table after the other is truncated."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from stepscope.cli import root
from stepscope.diagnosis import Verdict, diagnose
from stepscope.run import Run
from stepscope.schema import TRACE_TABLES, Payload, labels_of, structs_in
from stepscope.store import open_run
from stepscope.views import VIEWS, ViewOptions
from stepscope.views.options import CURVE, SHARE_UNITS, UNREADABLE, WITHHELD
from tests.support.drawn_trace import copy, training

Imported = Callable[..., Run]
NEEDED = {"timeline-search": {"name": "gemm"}}
"""Options without which a view shows nothing."""


def show_views(run: Run) -> dict[str, msgspec.Struct]:
    return {
        name: view(run, ViewOptions(**NEEDED.get(name, {})))
        for name, view in VIEWS.items()
        if not view.needs or name in NEEDED
    }


@pytest.fixture(scope="module")
def recorded(imported: Imported) -> Run:
    return imported(a=[*training(), copy("Memcpy HtoD", 60, 5, 900, 4096)])


@pytest.fixture(scope="module")
def before(recorded: Run) -> dict[str, msgspec.Struct]:
    return show_views(recorded)


@pytest.fixture
def healthy(recorded: Run, tmp_path: Path) -> Path:
    """Copy the run: each test truncates its tables."""
    return shutil.copytree(recorded.reader.location, tmp_path / "run")


def truncate(run: Path, table: str) -> list[Path]:
    """Truncate the segments of a table; returns them."""
    segments = [path for path in run.rglob("*.parquet") if table in path.relative_to(run).parts]
    for segment in segments:
        segment.write_bytes(segment.read_bytes()[: segment.stat().st_size // 2])
    return segments


def list_shares(value: Any) -> Iterator[tuple[str, Any]]:
    """List the shares in a payload, those of a verdict excepted: it abstains by itself."""
    if isinstance(value, Verdict):
        return
    if isinstance(value, msgspec.Struct):
        for name, label in labels_of(type(value)).items():
            member = getattr(value, name)
            if label.unit in SHARE_UNITS:
                yield f"{type(value).__name__}.{name}", member
            else:
                yield from list_shares(member)
    elif isinstance(value, list):
        for item in value:
            yield from list_shares(item)


def list_reasons(value: Any) -> Iterator[str]:
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            member = getattr(value, name)
            if name == "missing" and member is not None:
                yield member
            yield from list_reasons(member)
    elif isinstance(value, list):
        for item in value:
            yield from list_reasons(item)


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(table.name, marks=pytest.mark.extended("other tables"))
        if table.name != "traces"
        else table.name
        for table in TRACE_TABLES
    ],
)
def test_a_view_that_depends_on_a_truncated_table_says_so(
    before: dict[str, msgspec.Struct], healthy: Path, table: str
) -> None:
    assert not any(payload.damage for payload in before.values() if isinstance(payload, Payload))
    segments = truncate(healthy, table)
    if not segments:
        pytest.skip("the trace has no rows of this table")
    damaged = Run(open_run(healthy))
    for name, payload in show_views(damaged).items():
        assert isinstance(payload, Payload), name
        if not payload.damage:
            assert msgspec.to_builtins(payload) == msgspec.to_builtins(before[name]), name
            continue
        assert payload.damage[0] == WITHHELD
        assert any(segments[0].name in sentence for sentence in payload.damage[1:])
        for field, share in list_shares(payload):
            is_withheld = not share or not any(item is not None for item in share)
            assert is_withheld or field == "TrackSlices.busy_ratio", (name, field, share)
        assert {*list_reasons(payload)} <= {UNREADABLE}, name


def test_a_truncated_table_that_a_view_does_not_read_changes_nothing(
    before: dict[str, msgspec.Struct], healthy: Path
) -> None:
    truncate(healthy, "operators")
    damaged = Run(open_run(healthy))
    assert VIEWS["operators"](damaged).damage  # type: ignore[attr-defined]
    assert VIEWS["configuration"](damaged) == before["configuration"]


def test_a_view_does_not_advise_to_record_what_it_cannot_read(healthy: Path) -> None:
    truncate(healthy, "runtime_calls")
    payload = VIEWS["launches"](Run(open_run(healthy)))
    assert UNREADABLE in list_reasons(payload)


@pytest.mark.parametrize("view", ["gpu-time", "overview", "steps"])
def test_the_terminal_shows_the_damage_first(
    healthy: Path, view: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (segment,) = truncate(healthy, "traces")
    root.main(["show", str(healthy), view], standalone_mode=False)
    text = capsys.readouterr().out
    assert text.startswith("! A part of the run cannot be read")
    assert segment.name in text


def test_the_verdict_abstains(healthy: Path) -> None:
    (segment,) = truncate(healthy, "traces")
    verdict = diagnose(Run(open_run(healthy)))
    assert verdict.suspect == "insufficient_evidence"
    assert verdict.headline.startswith("No verdict: a part of the run is damaged; ")
    assert segment.name in verdict.headline


def test_every_share_can_be_withheld() -> None:
    """Outside of verdicts, which abstain. A share that cannot be null is in a struct of shares
    only, which can, or is drawn for its position."""
    drawn = {"TrackSlices.busy_ratio"}
    structs = structs_in([view.payload for view in VIEWS.values()])
    remaining = {}
    for struct in structs:
        types = get_type_hints(struct)
        shares = {n for n, label in labels_of(struct).items() if label.unit in SHARE_UNITS}
        remaining[struct] = {
            f"{struct.__name__}.{name}"
            for name in shares
            if not (is_nullable(types[name]) or get_origin(types[name]) is dict)
            and not name.endswith(CURVE)
            and get_args(types[name]) != (float | None,)
        } - drawn
    required = {
        type_
        for struct in structs
        for hint in get_type_hints(struct).values()
        for type_ in (hint, *get_args(hint))
        if not is_nullable(hint)
    }
    for struct, names in remaining.items():
        if not struct.__module__.startswith("stepscope.diagnosis"):
            assert not names or (holds_only_shares(struct) and struct not in required), names


def is_nullable(hint: Any) -> bool:
    return type(None) in get_args(hint)


def holds_only_shares(struct: type[msgspec.Struct]) -> bool:
    return {label.unit for label in labels_of(struct).values()} <= {*SHARE_UNITS, "none"}
