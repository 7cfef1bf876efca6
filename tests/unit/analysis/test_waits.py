"""Waits of the training thread by the frames that run, and what fills them."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope import analysis
from stepscope.analysis.input_pipeline.batches import StackSamples
from stepscope.analysis.input_pipeline.code_stages import parse_call, parse_stack
from stepscope.analysis.input_pipeline.data_preparation import PIPELINES
from stepscope.analysis.input_pipeline.waits import Wait, classify_wait, find_waits, parse_filler
from stepscope.analysis.steps.steps import find_steps
from stepscope.testing import Drawing, stack_text

MS = 1_000_000
CONDITION = "Condition.wait@python:threading.py"
QUEUE = f"Queue.get@python:queue.py > {CONDITION}"
START = "Thread._bootstrap@python:threading.py > Thread.run@python:threading.py"
NODES = "_apply_udf@torchdata/nodes/_apply_udf.py"


@pytest.mark.parametrize(
    ("stack", "kind"),
    [
        (QUEUE, "thread"),
        (f"Event.wait@python:threading.py > {CONDITION}", "thread"),
        ("Thread.join@python:threading.py", "thread"),
        (f"Future.result@python:concurrent/futures/_base.py > {CONDITION}", "thread"),
        (
            f"Pool.map@python:multiprocessing/pool.py > wait@python:threading.py > {CONDITION}",
            "process",
        ),
        ("Connection.recv@python:multiprocessing/connection.py", "process"),
        ("SemLock.__enter__@python:multiprocessing/synchronize.py", "lock"),
        ("FileLock.acquire@filelock/_api.py > sleep@python:time.py", "lock"),
        ("run@python:subprocess.py > PollSelector.select@python:selectors.py", "program"),
        ("urlopen@python:urllib/request.py > SocketIO.readinto@python:socket.py", "service"),
        ("Session.get@requests/sessions.py > readinto@python:socket.py", "service"),
        ("sleep@python:asyncio/tasks.py", "coroutine"),
        ("StreamReader.read@python:asyncio/streams.py", "service"),
        ("select@python:selectors.py > answer", "coroutine"),
        ("quantiles@python:statistics.py", None),
        ("Queue.qsize@python:queue.py", None),
        # torch's own waits are phases, or part of the computation
        (f"backward@torch/_tensor.py > {CONDITION}", None),
    ],
)
def test_the_frames_below_a_line_tell_what_it_waits_for(stack: str, kind: str | None) -> None:
    wait = classify_wait(parse_stack(stack_text(f"main > {stack}")))
    assert (wait.kind if wait is not None else None) == kind


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("batches.get()", "thread"),
        ("batches.get(timeout=5)", "thread"),
        ("turn.acquire()", "thread"),
        ("lock.acquire()", "lock"),
        ("fcntl.flock(file, fcntl.LOCK_EX)", "lock"),
        ("blocks.acquire()", "thread"),
        ("connection.recv(65536)", "service"),
        ("settings.get('name')", None),
        ("print(queue.get)", None),
        ("wait_for(queue.get())", None),
        ("x = q.get()", None),  # no call: it is not known what runs
    ],
)
def test_the_running_c_function_tells_it_where_no_frame_does(call: str, kind: str | None) -> None:
    wait = classify_wait(parse_stack(stack_text("main")), call)
    assert (wait.kind if wait is not None else None) == kind


@pytest.mark.parametrize(
    ("line", "is_wait"),
    [
        ("with self.lock:", True),
        ("with _index_lock, open(path) as file:", True),
        ("with FileLock(path):", True),
        ("with torch.no_grad():", False),
        ("with self.clock.running():", False),
        ("blocked = self.lock.locked()", False),
    ],
)
def test_a_line_that_takes_a_lock_waits_for_it(line: str, is_wait: bool) -> None:
    wait = classify_wait(parse_stack(stack_text("main")), "", line)
    assert (wait is not None and wait.kind == "lock") == is_wait


@pytest.mark.parametrize(
    ("stack", "name"),
    [
        (f"Loader.__next__@torchdata/nodes/loader.py > {QUEUE}", "torchdata.nodes"),
        (f"iter_threaded@ray/data/_internal/block_batching/util.py > {QUEUE}", "Ray Data"),
        (f"__next__@grain/_src/python/dataset/transformations/prefetch.py > {QUEUE}", "Grain"),
        (f"__iter__@webdataset/multi.py > {QUEUE}", "WebDataset"),
        (f"__next__@litdata/streaming/reader.py > {QUEUE}", "LitData"),
        (f"next@tensorflow/python/data/ops/iterator_ops.py > {QUEUE}", "tf.data"),
        (f"__iter__@fastai/data/load.py > {QUEUE}", "fastai"),
        (f"_iter@datasets/iterable_dataset.py > {QUEUE}", "Hugging Face Datasets"),
    ],
)
def test_input_pipelines_are_told_by_their_files(stack: str, name: str) -> None:
    assert classify_wait(parse_stack(stack_text(f"main > {stack}"))) == Wait("thread", name)


def test_each_pipeline_has_a_change_of_its_own() -> None:
    changes = [pipeline.processes or pipeline.threads for pipeline in PIPELINES]
    assert all(changes)
    assert len(set(changes)) == len(changes)


def fill(stack: str, filler: str, line: int, count: int = 1) -> str:
    return f"{stack_text(stack)};<filled by>|{line}|{count};{stack_text(filler)}"


def test_the_filling_thread_is_no_part_of_the_stack() -> None:
    text = fill(f"main > {QUEUE}", f"{START} > fill<call 3> > make", 7, 2)
    assert [frame.function for frame in parse_stack(text)] == [
        "main",
        "Queue.get",
        "Condition.wait",
    ]
    assert parse_call(text) == 0
    filler = parse_filler(text)
    assert filler is not None
    assert (filler.line, filler.worker_count) == (7, 2)
    assert [frame.function for frame in filler.frames[-2:]] == ["fill", "make"]
    assert parse_filler(stack_text("main")) is None


def sample(
    stacks: list[str], sources: dict[tuple[str, int, int], str] | None = None
) -> StackSamples:
    """Sample a stack for each of as many milliseconds."""
    count = len(stacks)
    return StackSamples(
        t_ns=np.arange(count, dtype=np.int64) * MS + MS // 2,
        weight_ns=np.full(count, MS, dtype=np.int64),
        stack=np.arange(count, dtype=np.int32),
        stacks=stacks,
        user_line=np.full(count, 5, dtype=np.int32),
        sources=sources or {},
    )


def wait_lines(
    step: str, stacks: list[str], workers: list[StackSamples] | None = None
) -> list[analysis.LineWait]:
    """Find the waits of steps of 10 ms, in which stack `number % len(stacks)` runs."""
    spans = Drawing().draw(step, 30).table()
    steps = find_steps(spans)
    assert steps is not None
    samples = sample([stacks[number % len(stacks)] for number in range(300)])
    return find_waits(spans, samples, steps, workers or [])


BETWEEN = "do 7 | forward 1 | backward 1 | optimizer 1"


def test_the_function_that_fills_a_wait() -> None:
    """In four of five samples the thread computes in `make`, in the other one it stores."""
    store = fill(f"main > {QUEUE}", f"{START} > fill > put@python:queue.py", 9)
    make = fill(f"main > {QUEUE}", f"{START} > fill > make", 7)
    (wait,) = wait_lines(BETWEEN, [make, make, make, make, store])
    assert (wait.kind, wait.file, wait.line, wait.phase) == ("thread", "/job/train.py", 5, "other")
    assert wait.ratio == pytest.approx(1)
    assert wait.function is not None
    assert wait.function.location == "make (train.py:7)"
    assert wait.function.computes_ratio == 1
    assert not wait.function.in_processes


def test_a_function_that_a_pipeline_runs_in_its_thread() -> None:
    """It is the function that the library calls, not the one that is innermost."""
    stack = fill(
        f"main > next@torchdata/nodes/loader.py > {QUEUE}",
        f"{START} > {NODES} > decode > spin",
        3,
        4,
    )
    (wait,) = wait_lines("wait 7 | forward 1 | backward 1 | optimizer 1", [stack])
    assert (wait.pipeline, wait.phase) == ("torchdata.nodes", "data_wait")
    assert wait.function is not None
    assert (wait.function.name, wait.function.worker_count) == ("decode", 4)


def test_a_thread_that_waits_itself() -> None:
    download = f"{START} > fill > download > urlopen@python:urllib/request.py"
    (wait,) = wait_lines(BETWEEN, [fill(f"main > {QUEUE}", download, 7)])
    assert wait.function is not None
    assert (wait.function.computes_ratio, wait.function.waits_for) == (0, "service")


def test_a_function_in_processes() -> None:
    """A forked process has the frames of its parent below its own."""
    worker = stack_text(
        "main > start@python:multiprocessing/process.py > run@python:multiprocessing/process.py > "
        "worker@python:multiprocessing/pool.py > decode"
    )
    idle = stack_text(
        "main > run@python:multiprocessing/process.py > get@python:multiprocessing/queues.py"
    )
    workers = [sample([worker] * 300), sample([worker] * 200 + [idle] * 100), sample([idle] * 300)]
    (wait,) = wait_lines(
        BETWEEN, [stack_text("main > map@python:multiprocessing/pool.py")], workers
    )
    assert (wait.kind, wait.function and wait.function.name) == ("process", "decode")
    assert wait.function is not None
    assert (wait.function.worker_count, wait.function.in_processes) == (2, True)


def test_a_wait_in_the_loop_of_a_library_is_at_its_function() -> None:
    """The line of the script is the call that started the training."""
    loop = "main > learn@rl/ppo.py"
    inside = stack_text(f"{loop} > train@rl/ppo.py > forward@torch/nn/linear.py")
    wait = stack_text(
        f"{loop} > Env.step@rl/vec_env.py > recv@python:multiprocessing/connection.py"
    )
    stacks = [*[wait] * 7, *[inside] * 3]
    (line,) = wait_lines(BETWEEN, stacks)
    assert (line.kind, line.file, line.line, line.caller) == ("process", "rl Env.step", 0, "")
    assert line.ratio == pytest.approx(1)


def test_a_pipeline_that_runs_in_the_training_thread() -> None:
    stack = stack_text("main > __next__@grain/_src/python/data_loader.py > Decode.map > spin")
    (wait,) = wait_lines("wait 7 | forward 1 | backward 1 | optimizer 1", [stack])
    assert wait.is_inline
    assert (wait.pipeline, wait.function and wait.function.name) == ("Grain", "Decode.map")


def test_waits_in_compute_phases_are_computation() -> None:
    assert not wait_lines("forward 8 | backward 1 | optimizer 1", [stack_text(f"main > {QUEUE}")])
