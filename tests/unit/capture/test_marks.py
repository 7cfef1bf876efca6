"""Marks of the user, and the records that a run has of them."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import math
import pickle
import threading
from collections.abc import AsyncGenerator, Generator, Iterator
from decimal import Decimal
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepscope
from stepscope.capture import marks, session
from stepscope.capture.frameworks.progress import Idle, Progress
from stepscope.capture.session import NAMES_EXHAUSTED
from stepscope.spool import Flag


class TestIntervals:
    @pytest.mark.seed("SMP-03")
    def test_a_context_manager_times_its_body(self, recording: Any) -> None:
        with stepscope.annotate("outer"), stepscope.annotate("inner") as inner:
            assert isinstance(inner, marks.Annotation)
        outer, inner_record = recording.drain().of("annotation")
        assert (outer.name, outer.depth, inner_record.name, inner_record.depth) == (
            "outer", 0, "inner", 1,
        )  # fmt: skip
        assert inner_record.inside(outer)

    def test_an_exception_passes_and_ends_the_interval(self, recording: Any) -> None:
        with pytest.raises(ZeroDivisionError), stepscope.annotate("fails"):
            print(1 / 0)
        with stepscope.annotate("after"):
            pass
        fails, after = recording.drain().of("annotation")
        assert fails.end is not None
        assert after.depth == 0

    def test_a_decorator_preserves_the_metadata_of_the_function(self, recording: Any) -> None:
        @stepscope.annotate("add")
        def add(a: int, b: int = 2) -> int:
            """Adds."""
            return a + b

        assert (add(1), add(1, b=5)) == (3, 6)
        assert (add.__name__, add.__doc__) == ("add", "Adds.")
        assert list(inspect.signature(add).parameters) == ["a", "b"]
        assert recording.drain().count("annotation") == {"add": 2}

    def test_one_object_may_be_open_several_times_and_again(self, recording: Any) -> None:
        timer = stepscope.annotate("again")

        @stepscope.annotate("down")
        def down(n: int) -> None:
            with timer:
                if n:
                    down(n - 1)

        down(3)
        timer.__exit__()  # without effect
        with timer:
            stepscope.step(1)
        *nested, later = recording.drain().of("annotation")
        assert [(r.name, r.depth) for r in nested] == [
            (name, 2 * n + k) for n in range(4) for k, name in enumerate(("down", "again"))
        ]
        assert all(b.inside(a) for a, b in pairwise(nested))
        assert nested[0].end <= later.start
        assert (later.depth, later.end is None) == (0, False)

    def test_one_object_may_be_open_in_several_threads(self, recording: Any) -> None:
        timer = stepscope.annotate("shared")
        inside, may_leave = threading.Barrier(4), [threading.Event() for _ in range(4)]

        def work(number: int) -> None:
            with stepscope.annotate("own", number=number), timer:
                inside.wait()
                may_leave[number].wait()

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for number in (2, 0, 3, 1):
            may_leave[number].set()
            threads[number].join()
        recorded = recording.drain()
        own_intervals = {r.log: r for r in recorded.of("annotation", name="own")}
        shared = recorded.of("annotation", name="shared")
        assert len(shared) == len(own_intervals) == 4
        assert all(r.inside(own_intervals[r.log]) for r in shared)
        by_end = sorted(own_intervals.values(), key=lambda r: r.end)
        assert [json.loads(r.labels)["number"] for r in by_end] == [2, 0, 3, 1]

    @pytest.mark.seed("SMP-04")
    def test_begin_and_end_in_different_functions_and_threads(self, recording: Any) -> None:
        first = stepscope.annotation_begin("first", part=1)
        second = stepscope.annotation_begin("second")
        stepscope.annotation_end(first)
        thread = threading.Thread(target=stepscope.annotation_end, args=(second,))
        thread.start()
        thread.join()
        first.end()
        second.end()
        with stepscope.annotate("after"):
            pass
        one, two, after = recording.drain().of("annotation")
        assert (one.name, one.labels, two.name) == ("first", '{"part": 1}', "second")
        assert one.end < two.end < after.start
        assert after.depth == 0

    def test_neither_an_open_interval_nor_a_wrong_depth_has_an_effect(self, recording: Any) -> None:
        logs = session.thread_logs()
        assert logs is not None
        logs.depth = 70_000  # after so many open intervals
        stepscope.annotation_begin("forgotten")
        with stepscope.annotate("after"):
            pass
        forgotten, after = recording.drain().of("annotation")
        assert forgotten.end is None
        assert (after.name, after.flags, after.kind) == ("after", 0, "annotation")
        logs.depth = -1
        with stepscope.annotate("x"):
            stepscope.step(1)
        assert len(recording.drain().records) == 4

    def test_modes_are_a_separate_kind_of_interval(self, recording: Any) -> None:
        @stepscope.mode("EVAL")
        def evaluate() -> None:
            with stepscope.mode("PREDICT"):
                pass

        evaluate()
        assert recording.drain().count("mode") == {"EVAL": 1, "PREDICT": 1}


class TestAsynchronous:
    """Asynchronous intervals overlap on one thread, so they are not nested in its tree."""

    def test_coroutines_and_contexts(self, recording: Any) -> None:
        @stepscope.annotate("fetch")
        async def fetch(n: int) -> int:
            async with stepscope.annotate("wait"):
                await asyncio.sleep(0)
            return n

        async def main() -> list[int]:
            return await asyncio.gather(*(fetch(n) for n in range(3)))

        assert inspect.iscoroutinefunction(fetch)
        assert asyncio.run(main()) == [0, 1, 2]
        records = recording.drain().of("annotation")
        assert all(r.flags & Flag.ASYNC and r.depth == 0 and r.end for r in records)
        assert recording.drain().count("annotation") == {"fetch": 3, "wait": 3}
        first, second, _ = recording.drain().of("annotation", name="fetch")
        assert second.start < first.end, "the intervals overlap"

    def test_one_object_serves_with_and_async_with(self, recording: Any) -> None:
        timer = stepscope.annotate("both")

        async def main() -> None:
            async with timer:
                pass

        asyncio.run(main())
        with timer:
            pass
        asynchronous, nested = recording.drain().of("annotation")
        assert (asynchronous.flags, nested.flags) == (Flag.ASYNC, 0)

    def test_a_generator_is_timed_to_its_end_and_keeps_its_behaviour(self, recording: Any) -> None:
        def talk() -> Generator[int, str, str]:
            inputs = []
            try:
                inputs.append((yield 1))
                inputs.append((yield 2))
            except KeyError:
                inputs.append("KeyError")
            return "+".join(inputs)

        for drive in (talk, stepscope.annotate("talk")(talk)):
            generator = drive()
            assert next(generator) == 1
            assert generator.send("a") == 2
            with pytest.raises(StopIteration) as stop:
                generator.throw(KeyError())
            assert stop.value.value == "a+KeyError"
        (record,) = recording.drain().of("annotation")
        assert record.end is not None
        assert record.flags == Flag.ASYNC

    def test_an_unfinished_generator_ends_when_it_is_closed(self, recording: Any) -> None:
        @stepscope.annotate("numbers")
        def numbers() -> Iterator[int]:
            yield from range(10)

        generator = numbers()
        next(generator)
        thread = threading.Thread(target=generator.close)  # possibly in another thread
        thread.start()
        thread.join()
        (record,) = recording.drain().of("annotation")
        assert record.end is not None

    def test_an_async_generator_keeps_its_behaviour(self, recording: Any) -> None:
        log: list[object] = []

        async def talk() -> AsyncGenerator[int, str]:
            try:
                log.append((yield 1))
                try:
                    log.append((yield 2))
                except KeyError as error:
                    log.append(error.args)
                    yield 3
            finally:
                log.append("closed")

        async def drive(generator: AsyncGenerator[int, str]) -> list[object]:
            log.clear()
            outputs: list[object] = [await generator.__anext__(), await generator.asend("hello")]
            outputs.append(await generator.athrow(KeyError("k")))
            await generator.aclose()
            with pytest.raises(StopAsyncIteration):
                await generator.__anext__()
            return [*outputs, *log]

        annotated = stepscope.annotate("talk")(talk)
        assert inspect.isasyncgenfunction(annotated)
        plain = asyncio.run(drive(talk()))
        assert asyncio.run(drive(annotated())) == plain == [1, 2, 3, "hello", ("k",), "closed"]

        async def collect() -> list[int]:
            return [item async for item in annotated()]

        log.clear()
        assert asyncio.run(collect()) == [1, 2]
        assert recording.drain().count("annotation") == {"talk": 2}
        assert all(r.end for r in recording.drain().of("annotation"))


class TestNames:
    def test_distinct_labels_are_stored(self, recording: Any) -> None:
        for language in ("de", "en", "de"):
            with stepscope.annotate("tokenise", language=language, size=3):
                pass
        labels = [json.loads(r.labels) for r in recording.drain().of("annotation")]
        assert [label_set["language"] for label_set in labels] == ["de", "en", "de"]
        assert all(label_set["size"] == 3 for label_set in labels)
        names = Path(session.current().directory, "journal.jsonl").read_text().count('"k": "name"')
        assert names == 2

    def test_any_label_is_accepted(self, recording: Any) -> None:
        circle: list[object] = []
        circle.append(circle)
        with (
            stepscope.annotate("a", what=object, x=Decimal("1.5")),
            stepscope.annotate("b", circle=circle),
            stepscope.annotate("c", keys={(1, 2): 3}),
            stepscope.annotate("d", number=math.nan),
        ):
            pass
        records = recording.drain().of("annotation")
        assert [type(json.loads(r.labels)) for r in records] == [dict] * 4

    def test_any_name_is_accepted(self, recording: Any) -> None:
        class Phase(StrEnum):
            LOAD = "load"

        for name in (Phase.LOAD, 7, None, ["x"], "", "a\nb", "\udcff", "é" * 1000):
            with stepscope.annotate(name):  # type: ignore[arg-type]
                pass
            stepscope.scalar(name, 1)  # type: ignore[arg-type]
        expected = ["load", "7", "None", "['x']", "", "a\nb", "\udcff", "é" * 1000]
        assert [r.name for r in recording.drain().of("annotation")] == expected
        assert [r.name for r in recording.drain().of("scalars")] == expected

    def test_there_is_a_limit_to_names(
        self, recording: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(session, "NAMES_LIMIT", 10)
        for n in range(1000):
            with stepscope.annotate(f"name {n % 100}"):
                pass
        records = recording.drain().of("annotation")
        stored_names = {f"name {n}" for n in range(10)}
        assert {r.name for r in records} == {*stored_names, NAMES_EXHAUSTED}
        assert sum(r.name in stored_names for r in records) == 100
        current = session.current()
        assert current is not None
        assert len(current.metas) <= 11, "the job's memory does not grow with new names"

    def test_a_record_is_kept_when_its_name_cannot_be_written(
        self, recording: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        current = session.current()
        assert current is not None
        path, current.journal.path = current.journal.path, "/proc/no/such/place"
        with stepscope.annotate("nameless"):
            pass
        current.journal.path = path
        with stepscope.annotate("nameless"):
            pass
        assert [r.name for r in recording.drain().of("annotation")] == ["", "nameless"]


class TestStepsAndScalars:
    def test_steps_carry_their_number(self, recording: Any) -> None:
        stepscope.step()
        for number in (5, np.int64(6), np.array(7), True):
            stepscope.step(number)  # type: ignore[arg-type]
        records = recording.drain().of("step")
        assert [r.value for r in records] == [-1, 5, 6, 7, 1]
        assert all(r.end == r.start for r in records)

    def test_a_step_that_is_not_a_number_is_an_error_with_or_without_a_recording(self) -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            stepscope.step("x")  # type: ignore[arg-type]

    def test_steps_mark_the_end_of_each_iteration(self, recording: Any) -> None:
        items = []
        for item in stepscope.steps("abc"):
            with stepscope.annotate(item):
                items.append(item)
        assert items == ["a", "b", "c"]
        recorded = recording.drain()
        assert [r.value for r in recorded.of("step")] == [0, 1, 2]
        for body, mark in zip(recorded.of("annotation"), recorded.of("step"), strict=True):
            assert body.end <= mark.start

    @pytest.mark.seed("DBT-06")
    def test_scalars_keep_every_bit(self, recording: Any) -> None:
        values = [0.1, -0.0, 1e-310, math.inf, 3, np.float32(0.5), True, Decimal("0.25")]
        for value in values:
            stepscope.scalar("loss", value)  # type: ignore[arg-type]
        recorded = [r.value for r in recording.drain().of("scalars")]
        assert [math.copysign(1, v) for v in recorded] == [math.copysign(1, v) for v in values]
        assert recorded == [float(v) for v in values]

    def test_a_scalar_that_is_not_a_number_is_skipped(self, recording: Any) -> None:
        for value in (None, "x", [1], np.zeros(2), 10**400, object()):
            stepscope.scalar("loss", value)  # type: ignore[arg-type]
        stepscope.scalar("loss", 1)
        assert [r.value for r in recording.drain().records] == [1.0]

    def test_marked_steps_notify_adapters(self, recording: Any) -> None:
        calls = []
        marks.step_listeners.append(lambda: calls.append(1))
        try:
            stepscope.step()
        finally:
            marks.step_listeners.pop()
        assert calls == [1]


@pytest.mark.parametrize(
    "duplicate",
    [
        copy.copy,
        copy.deepcopy,
        lambda mark: pickle.loads(pickle.dumps(mark)),  # noqa: S301 - of this test
    ],
)
def test_copies_of_a_mark_are_marks_that_are_not_open(duplicate: Any) -> None:
    mark = stepscope.annotate("fetch", shard="a")
    with mark, duplicate(mark) as copied:
        assert (type(copied), copied._key, copied is mark) == (type(mark), mark._key, False)


def test_what_is_due_in_the_first_steps_is_due_again_when_training_starts() -> None:
    progress = Progress()
    calls: list[int] = []
    progress.on_some_boundaries(lambda: calls.append(progress.step_count))
    progress.on_boundary(lambda: None, Idle)
    for _ in range(1005):
        progress.notify_fetch_end(has_batch=True)
        progress.notify_prediction()
        progress.notify_fetch_start()
    calls.clear()
    for _ in range(30):
        progress.notify_optimizer_step()
        progress.notify_work_start()
    assert calls[:20] == list(range(1, 21))
