"""Registry of views: those of installed packages join the built-in ones."""

from __future__ import annotations

import contextlib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stepscope.errors import UsageError
from stepscope.run import Run
from stepscope.run.job.times import list_programs
from stepscope.store import DictColumn, RunWriter, open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from stepscope.views import DEFAULTS, View, ViewOptions, registry
from stepscope.views.options import RANGE_OPTIONS, Ranged


class ToyView(msgspec.Struct):
    busy_ns: int


def show_toy(_run: Run, _options: ViewOptions = DEFAULTS) -> ToyView:
    return ToyView(busy_ns=5)


def show_nothing(_run: Run, _options: ViewOptions = DEFAULTS):  # type: ignore[no-untyped-def]
    """Return nothing; the type of the payload is not annotated."""


TOY = View(lambda: show_toy)
UNTYPED = View(lambda: show_nothing)


def offer(monkeypatch: pytest.MonkeyPatch, **values: str) -> dict[str, View]:
    """Return the views with entry points of a package."""
    offers = [EntryPoint(name, value, registry.GROUP) for name, value in values.items()]
    monkeypatch.setattr(registry, "entry_points", lambda group: offers)
    return registry.installed_views()


def test_a_view_that_accepts_a_range_shows_it() -> None:
    for name, view in registry.BUILT_IN_VIEWS.items():
        if name.startswith("timeline-"):  # these restrict the tracks that they draw themselves
            continue
        is_ranged = issubclass(view.payload, Ranged)
        assert is_ranged == (set(RANGE_OPTIONS) <= set(view.uses)), (
            f"{view.payload.__name__} must be a subclass of Ranged if, and only if, {name} has "
            f"RANGE_OPTIONS in {registry.__file__}"
        )


@pytest.mark.slow("shows every view twice")
def test_what_is_recorded_before_the_steps_changes_no_view(tmp_path: Path) -> None:
    """Programs such as a launcher, and samples of other logs than that of the step sampler."""
    builder = RunBuilder(tmp_path / "run", code={"load": "main > read@/job/load.py"})
    rank = builder.rank(0, world_size=1, workers=1)
    rank.draw("wait 10 | do:load 5 | forward 30 | backward 40 | optimizer 20", 30)
    before = show_all(builder.open())
    assert len(before) > 20
    node, path = rank.info.node, str(tmp_path / "run")
    launched_ns = EPOCH_NS - 5 * 10**9
    launcher = msgspec.structs.replace(
        rank.info, process="1-1-0", role="program", rank=None, pid=1, launched_ns=launched_ns
    )
    times = np.arange(launched_ns, builder.end_ns + 10**9, 50_000_000)
    with RunWriter(path, node) as writer:
        writer.put_process(launcher)
        for process, log in (("1-1-0", "7s"), (rank.info.process, "8s"), (rank.info.process, "9e")):
            writer.append(
                "stacks",
                {
                    "node": DictColumn.constant(node, len(times)),
                    "process": DictColumn.constant(process, len(times)),
                    "log": DictColumn.constant(log, len(times)),
                    "seq": np.arange(len(times)),
                    "t_ns": times,
                    "stack": DictColumn.constant("main|/x/train.py|", len(times)),
                    "line": np.ones(len(times), dtype=np.int32),
                    "user_line": np.ones(len(times), dtype=np.int32),
                },
            )
    run = Run(open_run(path))
    shown = show_all(run)
    assert shown.pop("job-time") != before.pop("job-time")  # the view of what is before the steps
    jobs = [payloads["overview"]["verdict"].pop("job") for payloads in (before, shown)]
    assert jobs[0] != jobs[1]
    assert shown == before
    assert [program.process for program in list_programs(run)] == ["1-1-0"]


def show_all(run: Run) -> dict[str, Any]:
    """Return the payloads of the built-in views that need no option, by name."""
    payloads: dict[str, Any] = {}
    for name, view in registry.BUILT_IN_VIEWS.items():
        with contextlib.suppress(UsageError):
            payloads[name] = msgspec.to_builtins(view(run))
    return payloads


def test_a_view_of_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    views = offer(monkeypatch, toy=f"{__name__}:TOY")
    assert list(views) == [*registry.BUILT_IN_VIEWS, "toy"]
    assert views["toy"] is TOY


def test_a_built_in_view_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    views = offer(monkeypatch, steps=f"{__name__}:TOY")
    assert views == registry.BUILT_IN_VIEWS


@pytest.mark.parametrize(
    "value", ["no.such.module:VIEW", f"{__name__}:ToyView", f"{__name__}:UNTYPED"]
)
def test_a_broken_package_costs_a_warning_only(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    with pytest.warns(UserWarning, match="The view broken cannot be loaded"):
        views = offer(monkeypatch, broken=value, toy=f"{__name__}:TOY")
    assert list(views) == [*registry.BUILT_IN_VIEWS, "toy"]
