"""Python profiles in SageMaker Debugger's output: files of cProfile and pyinstrument."""

from __future__ import annotations

import cProfile
import io
import json
import marshal
import pstats
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import stepscope
from stepscope.cli import root
from stepscope.importers.smdebug import python_profiles
from stepscope.importers.smdebug.python_profiles import read_profile
from tests.support.debugger_files import EPOCH_NS, DebuggerOutput, event, rows, step

US, S = 10**3, 10**9


def fibonacci(number: int) -> int:
    return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)


def sort_numbers() -> list[int]:
    return sorted(range(1000), key=lambda number: -number)


def profile_functions(path: Path) -> None:
    profile = cProfile.Profile()
    profile.runcall(fibonacci, 8)
    profile.runcall(sort_numbers)
    profile.dump_stats(path)


# --- the marshal format ----------------------------------------------------------------------

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda values: (
        st.tuples(values, values)
        | st.lists(values, max_size=4)
        | st.dictionaries(st.tuples(st.text(), st.integers()), values, max_size=4)
    ),
    max_leaves=10,
)


@given(PLAIN, st.sampled_from([0, 1, 2, 3, 4]))
def test_marshalled_data_is_read(value: Any, version: int) -> None:
    data = marshal.dumps(value, version)
    assert python_profiles.load(data) == marshal.loads(data)  # noqa: S302 - of our own bytes


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_an_error(data: bytes) -> None:
    try:
        python_profiles.load(data)
    except ValueError:
        pass


def test_damaged_profiles_are_a_value_or_an_error(tmp_path: Path) -> None:
    profile_functions(tmp_path / "stats")
    content, rng = (tmp_path / "stats").read_bytes(), random.Random(5)
    for _ in range(2000):
        damaged = bytearray(content[: rng.randint(1, len(content))])
        for _ in range(rng.randint(0, 3)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            python_profiles.load(bytes(damaged))
        except ValueError:
            continue


@pytest.mark.parametrize(
    "data",
    [
        marshal.dumps(compile("1", "x", "eval")),
        b"(" + b"\xff\xff\xff\x7f",
        b")\x01" * 50,
        b"\xdb\x72\x00\x00\x00\x00",  # a list that contains itself
        b"{N",
        b"0",
        b"",
    ],
    ids=["code", "huge", "deep", "cyclic", "open dict", "no value", "empty"],
)
def test_hostile_data_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        python_profiles.load(data)


# --- profiles --------------------------------------------------------------------------------


def test_functions_are_those_of_pstats(output: DebuggerOutput) -> None:
    path = output.python_profile("77-algo-1", "python_stats", window_us=(1_000, 2_000))
    profile_functions(path)
    run = output.imported()
    expected = {
        (function, line, "" if file == "~" else file): (
            round(own_s * 1e9), round(total_s * 1e9), calls, primitive,
        )
        for (file, line, function), (primitive, calls, own_s, total_s, _) in pstats.Stats(
            str(path), stream=io.StringIO()
        ).stats.items()  # type: ignore[attr-defined]
    }  # fmt: skip
    table = rows(run, "python_profiles")
    figures = ("own_ns", "total_ns", "calls", "primitive_calls")
    assert {
        (r["function"], r["line"], r["file"]): tuple(r[name] for name in figures) for r in table
    } == expected
    (fibonacci_row,) = [r for r in table if r["function"] == "fibonacci"]
    assert (fibonacci_row["calls"], fibonacci_row["primitive_calls"]) == (67, 1)
    times = {(r["start_ns"], r["end_ns"]) for r in table}
    assert times == {(EPOCH_NS + 1_000 * US, EPOCH_NS + 2_000 * US)}
    assert {(r["start_at"], r["end_at"]) for r in table} == {
        ("train-9-stepstart", "train-10-stepend")
    }
    (process,) = run.processes
    assert (process.process, process.pid, process.node) == ("77-algo-1", 77, "algo-1")


def frame(function: str, time_s: float, *children: Any, file: str = "/job/train.py") -> Any:
    return {"function": function, "file_path": file, "line_no": 3, "time": time_s,
            "children": list(children)}  # fmt: skip


@pytest.mark.seed("DBP-06")
def test_a_tree_of_calls_is_summed(output: DebuggerOutput, tmp_path: Path) -> None:
    """Recursion counts once in the total time; `[self]` is the time of its caller."""
    torch = "/usr/lib/python3.8/site-packages/torch/nn/modules.py"
    inner = frame("walk", 0.25, frame("forward", 0.125, file=torch))
    tree = frame("main", 2.0, frame("walk", 1.5, inner, frame("[self]", 0.5, file="")))
    path = output.python_profile("77-algo-1", "python_stats.json", window_us=(0, 9))
    path.write_text(json.dumps({"duration": 2.0, "sample_count": 9, "root_frame": tree}))
    output.python_profile("77-algo-1", "python_stats.html", window_us=(0, 9)).write_text("<p>")
    output.imported()
    table = stepscope.open(tmp_path / "run").python_profile().rows()
    own_s = {"main": 0.5, "walk": 1.5 - 0.25 + 0.125, "forward": 0.125}
    total_s = {"main": 2.0, "walk": 1.5, "forward": 0.125}
    assert {r["function"]: r["own_ns"] for r in table} == {n: s * S for n, s in own_s.items()}
    assert {r["function"]: r["total_ns"] for r in table} == {n: s * S for n, s in total_s.items()}
    assert {r["function"]: r["own_ratio"] for r in table} == pytest.approx(
        {name: seconds / 2 for name, seconds in own_s.items()}
    )
    assert {r["function"]: r["library"] for r in table} == {
        "main": "", "walk": "", "forward": "torch",
    }  # fmt: skip
    assert {(r["calls"], r["own_count"], r["profiler"]) for r in table} == {
        (None, None, "pyinstrument")
    }


@pytest.mark.seed("DBP-06")
def test_profiles_of_steps(output: DebuggerOutput, tmp_path: Path) -> None:
    output.events(
        "77-algo-1",
        [step(n, 1000 * n, 1000) for n in range(20)]
        + [event("Forward", "Net", 1000 * n, 900) for n in range(20)],
    )
    for number in (9, 12):
        window = (1000 * number + 10, 1000 * number + 990)
        path = output.python_profile("77-algo-1", "python_stats", window_us=window)
        stats = {("/job/train.py", 5, "train"): (1, 2, 0.25 * number, 0.5 * number, {})}
        path.write_bytes(marshal.dumps(stats))
    output.imported()
    run = stepscope.open(tmp_path / "run")
    sums = {
        steps: [
            (r["own_ns"], r["total_ns"], r["calls"]) for r in run.python_profile(steps=steps).rows()
        ]
        for steps in [None, (9, 10), (10, 13), (13, 20)]
    }
    assert sums == {
        None: [(0.25 * 21 * S, 0.5 * 21 * S, 4)],
        (9, 10): [(0.25 * 9 * S, 0.5 * 9 * S, 2)],
        (10, 13): [(0.25 * 12 * S, 0.5 * 12 * S, 2)],
        (13, 20): [],
    }
    assert not len(run.python_profile(phase="forward"))


def test_the_old_layout(tmp_path: Path) -> None:
    path = tmp_path / "100_200_77-algo-1_9" / "python_stats"
    path.parent.mkdir()
    profile_functions(path)
    profile = read_profile(path)
    assert (profile.pid, profile.host, profile.start_at) == (77, "algo-1", "step-9")
    assert (profile.start_ns, profile.end_ns) == (100 * US, 200 * US)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("python_stats", b"no profile"),
        ("python_stats", marshal.dumps([1, 2])),
        ("python_stats", marshal.dumps({("f", 1, "g"): (1, 1, float("nan"), 0.0, {})})),
        ("python_stats", marshal.dumps({("f", 1): (1, 1, 0.5, 0.5, {})})),
        ("python_stats.json", b"{}"),
        ("python_stats.json", b'{"root_frame": {"function": "f", "time": "long"}}'),
    ],
)
def test_unreadable_profiles_are_refused(
    output: DebuggerOutput,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: bytes,
) -> None:
    output.events("77-algo-1", [step(0, 0, 10)])
    output.python_profile("77-algo-1", name, window_us=(0, 9)).write_bytes(content)
    arguments = ["import", str(output.path), "-o", str(tmp_path / "run"), "--json"]
    root.main(arguments, standalone_mode=False)
    (refused,) = json.loads(capsys.readouterr().out)["refused"]
    assert "is no readable Python profile" in refused["reason"]


def test_a_folder_without_a_time_is_refused(tmp_path: Path) -> None:
    profile_functions(tmp_path / "python_stats")
    with pytest.raises(ValueError, match="does not state the time"):
        read_profile(tmp_path / "python_stats")
