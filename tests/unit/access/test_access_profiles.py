"""Python profiles by modes and periods, of drawn stack samples and of imported files."""

from __future__ import annotations

import marshal
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.access import OpenRun
from stepscope.errors import UsageError
from stepscope.testing import RunBuilder
from tests.support.access_run import MS, STEPS
from tests.support.debugger_files import EPOCH_NS, DebuggerOutput, event, step

pytestmark = pytest.mark.seed("DBU-13")
S = 10**9
CODE = ("prepare", "loss", "save", "check", "resume", "finish")
TRAIN = "wait 50 | forward 12 | do:loss 3 | backward 20 | optimizer 15"


@pytest.fixture(scope="module")
def evaluating(tmp_path_factory: pytest.TempPathFactory) -> OpenRun:
    builder = RunBuilder(
        tmp_path_factory.mktemp("evaluating") / "run",
        code={name: f"main > {name}" for name in CODE},
    )
    rank = builder.rank(0)
    rank.draw("do:prepare 300").draw(TRAIN, 20)
    rank.draw("do:save 50 | mode:EVAL ( predict 100 | do:check 200 ) | do:resume 70")
    rank.draw(TRAIN, 20).draw("do:finish 400")
    return stepscope.open(builder.write())


def own_ms(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the own time of the drawn functions."""
    return {row["function"]: row["own_ns"] / MS for row in rows if row["function"] in CODE}


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({}, dict(zip(CODE, (300, 120, 50, 200, 70, 400), strict=True))),
        ({"period": "initialization"}, {"prepare": 300}),
        ({"period": "training"}, {"loss": 120, "save": 50, "check": 200, "resume": 70}),
        ({"period": "finalization"}, {"finish": 400}),
        ({"modes": ("pre_step_zero", "train")}, {"prepare": 300}),
        ({"modes": "train"}, {"loss": 120}),
        ({"modes": ("train", "eval")}, {"save": 50}),
        ({"modes": "eval"}, {"check": 200}),
        ({"modes": ("eval", "train")}, {"resume": 70}),
        ({"modes": ("train", "post_close")}, {"finish": 400}),
        ({"modes": "predict"}, {}),
    ],
)
def test_samples_by_mode(evaluating: OpenRun, selection: Any, expected: dict[str, float]) -> None:
    assert own_ms(evaluating.python_profile(**selection).rows()) == expected


def test_samples_by_time(evaluating: OpenRun) -> None:
    start = evaluating.start_ns
    rows = evaluating.python_profile(start=start + 100 * MS, end=start + 200 * MS).rows()
    assert own_ms(rows) == {"prepare": 100}
    later = evaluating.python_profile(modes="train", start=start + 2300 * MS).rows()
    assert own_ms(later) == {"loss": 60}


def test_samples_state_no_calls(evaluating: OpenRun) -> None:
    rows = evaluating.python_profile().rows()
    assert {(row["calls"], row["primitive_calls"]) for row in rows} == {(None, None)}
    assert all(row["own_count"] is not None for row in rows)
    assert not len(evaluating.python_profile(borders=("stepstart", "stepend")))


PROFILES = (
    ("prestepzero-*-start", "train-0-stepstart"),
    ("train-9-stepstart", "train-9-forwardpassend"),
    ("train-9-forwardpassend", "train-10-stepstart"),
    ("train-10-stepend", "eval-0-stepstart"),
    ("eval-0-stepstart", "eval-0-forwardpassend"),
    ("eval-3-stepend", "posthookclose-*-end"),
)
"""Moments at the start and the end of imported profiles; the n-th has 2 to the n calls."""


def add_profiles(output: DebuggerOutput, recorder: str) -> None:
    output.events(
        recorder,
        [step(n, 1000 * n, 1000) for n in range(20)]
        + [event("Forward", "Net", 1000 * n, 900) for n in range(20)],
    )
    for number, borders in enumerate(PROFILES):
        path = output.python_profile(
            recorder,
            "python_stats",
            window_us=(1000 * number + 10, 1000 * number + 990),
            steps=borders,
        )
        calls = 2**number
        stats = {
            ("/job/train.py", 5, "train"): (calls, 2 * calls, 0.5 * calls, 1.0 * calls, {}),
            ("/job/train.py", 9, "helper"): (3 * calls, 3 * calls, 0.25 * calls, 0.75 * calls, {}),
        }
        path.write_bytes(marshal.dumps(stats))


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> OpenRun:
    directory = tmp_path_factory.mktemp("imported")
    output = DebuggerOutput(directory / "profiler-output")
    add_profiles(output, "77-algo-1")
    add_profiles(output, "78-algo-2")
    output.imported(directory / "run")
    return stepscope.open(directory / "run")


@pytest.mark.parametrize(
    ("selection", "numbers"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"period": "initialization"}, [0]),
        ({"period": "training"}, [1, 2, 3, 4]),
        ({"period": "finalization"}, [5]),
        ({"modes": ("pre_step_zero", "train")}, [0]),
        ({"modes": "train"}, [1, 2]),
        ({"modes": ("train", "eval")}, [3]),
        ({"modes": "eval"}, [4]),
        ({"modes": ("eval", "post_close")}, [5]),
        ({"modes": "global"}, []),
        ({"borders": ("stepstart", "forwardpassend")}, [1, 4]),
        ({"borders": ("stepstart", "forwardpassend"), "modes": "train"}, [1]),
        ({"start": EPOCH_NS + 3 * MS, "end": EPOCH_NS + 5 * MS}, [3, 4]),
    ],
)
def test_imported_profiles_by_mode(imported: OpenRun, selection: Any, numbers: list[int]) -> None:
    calls = sum(2**number for number in numbers)
    rows = imported.python_profile(**selection).rows()
    processes = {row["process"] for row in rows}
    assert processes == ({"77-algo-1", "78-algo-2"} if numbers else set())
    figures = ("function", "own_ns", "total_ns", "calls", "primitive_calls", "own_count")
    for process in processes:
        assert [tuple(r[name] for name in figures) for r in rows if r["process"] == process] == [
            ("train", 0.5 * calls * S, 1.0 * calls * S, 2 * calls, calls, None),
            ("helper", 0.25 * calls * S, 0.75 * calls * S, 3 * calls, 3 * calls, None),
        ]


def test_profiles_of_all_processes_together(imported: OpenRun, run: OpenRun) -> None:
    rows = imported.python_profile(merged=True).rows()
    calls = 2 * sum(2**number for number in range(len(PROFILES)))
    assert [(r["function"], r["process"], r["calls"], r["own_ns"]) for r in rows] == [
        ("train", None, 2 * calls, 0.5 * calls * S),
        ("helper", None, 3 * calls, 0.25 * calls * S),
    ]
    assert [r["own_ratio"] for r in rows] == pytest.approx([2 / 3, 1 / 3])
    sampled = {row["function"]: row for row in run.python_profile(merged=True).rows()}
    assert sampled["log"]["own_ns"] == 2 * STEPS * 5 * MS
    assert sampled["main"]["total_ratio"] == 1


def test_order_of_functions(imported: OpenRun) -> None:
    first = {
        order: imported.python_profile(order=order, merged=True, top=1).rows()[0]["function"]
        for order in ("own", "total", "calls", "primitive_calls")
    }
    assert first == {
        "own": "train", "total": "train", "calls": "helper", "primitive_calls": "helper",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"period": "warmup"}, "no period 'warmup'; there are 'initialization', 'training'"),
        ({"modes": ("train", "test")}, "no mode 'test'; there are 'train', 'eval'"),
        ({"borders": ("stepstart", "middle")}, "no border of a profile 'middle'; there are"),
        ({"order": "name"}, "no order 'name'; there are 'own', 'total', 'calls'"),
    ],
)
def test_a_wrong_selection_is_one_sentence(run: OpenRun, selection: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run.python_profile(**selection)


def test_profile_of_an_older_file_states_no_modes(tmp_path: Path) -> None:
    output = DebuggerOutput(tmp_path / "profiler-output")
    output.events("77-algo-1", [step(n, 1000 * n, 1000) for n in range(20)])
    path = output.python_profile("77-algo-1", "python_stats", window_us=(0, 9))
    older = path.parents[2] / "python" / f"{EPOCH_NS // 1000}_{EPOCH_NS // 1000 + 9}_77-algo-1_9"
    older.mkdir(parents=True)
    stats = {("/job/train.py", 5, "train"): (1, 1, 0.5, 0.5, {})}
    (older / "python_stats").write_bytes(marshal.dumps(stats))
    output.imported(tmp_path / "run")
    run = stepscope.open(tmp_path / "run")
    assert len(run.python_profile()) == 1
    for period in ("initialization", "training", "finalization"):
        assert not len(run.python_profile(period=period))
    assert not len(run.python_profile(modes="train"))


def test_html_has_the_functions_and_the_tree(
    evaluating: OpenRun, imported: OpenRun, tmp_path: Path
) -> None:
    page = evaluating.python_profile(period="initialization").html()
    assert "<!doctype html>" in page
    assert "prepare" in page
    assert "finish" not in page
    assert '<th class="" data-number="1">calls</th>' not in page  # samples state none
    assert "Calls of rank 0" in page
    path = imported.python_profile(merged=True).write_html(tmp_path / "profile.html")
    text = path.read_text()
    assert "primitive calls" in text
    assert "own samples" not in text
    assert "Calls of" not in text
    empty = imported.python_profile(modes="global")
    assert "No Python function was recorded" in empty.html()
    assert "<html" not in empty._repr_html_()
