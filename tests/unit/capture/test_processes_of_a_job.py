"""Logs of a job's processes and threads across fork, exit and exec."""

from __future__ import annotations

from typing import Any


def test_a_fork_inside_an_open_annotation(spool: Any) -> None:
    """The child has the parent's pages mapped; it must write into a separate log."""
    spool.run(
        """
        import os, stepscope
        outer = stepscope.annotation_begin("outer")
        with stepscope.annotate("with"):
            pid = os.fork()
            if not pid:
                with stepscope.annotate("child"):
                    pass
                stepscope.step(1)
        if not pid:
            outer.end()
            with stepscope.annotate("child again"):
                pass
            os._exit(0)
        os.waitpid(pid, 0)
        os._exit(0)
        """
    )
    recorded = spool.drain()
    parent, child = sorted(recorded.processes)
    assert recorded.processes[child].description["parent_pid"] == recorded.processes[parent].pid
    by_process = {
        name: sorted((r.name, r.depth) for r in recorded.records if r.process == name)
        for name in (parent, child)
    }
    assert by_process[parent] == [("outer", 0), ("with", 1)]
    assert by_process[child] == [("child", 0), ("child again", 0), ("step", 0)]
    still_open = [r.name for r in recorded.of("annotation") if r.end is None]
    assert still_open == ["outer"], "the child has not ended the parent's interval"


def test_a_fork_while_paused_stays_paused_and_leaves_no_directory(spool: Any) -> None:
    spool.run(
        """
        import os, stepscope
        with stepscope.annotate("a"):
            pid = os.fork()  # a child that records nothing
            if not pid:
                os._exit(0)
            os.waitpid(pid, 0)
        stepscope.step(0)
        stepscope.stop_profiling()
        pid = os.fork()
        stepscope.step(1)
        if pid:
            os.waitpid(pid, 0)
            stepscope.start_profiling()
            stepscope.step(2)
        """
    )
    recorded = spool.drain()
    assert [r.value for r in recorded.of("step")] == [0, 2]
    assert len(recorded.processes) == 1


def test_an_immediate_exit_loses_no_record(spool: Any) -> None:
    spool.run(
        """
        import os, stepscope
        for n in range(100):
            with stepscope.annotate("a"):
                stepscope.step(n)
        stepscope.annotation_begin("open")
        os._exit(0)
        """
    )
    recorded = spool.drain(final=False)
    assert [r.value for r in recorded.of("step")] == list(range(100))
    assert [r.end for r in recorded.of("annotation", name="open")] == [None]


def test_each_image_of_a_process_has_its_own_log(spool: Any) -> None:
    spool.run(
        """
        import os, sys, stepscope
        n = int(sys.argv[1])
        stepscope.step(n)
        if n < 3:
            os.execv(sys.executable, [sys.executable, __file__, str(n + 1)])
        """,
        "0",
    )
    recorded = spool.drain()
    assert [name.rpartition("-")[2] for name in sorted(recorded.processes)] == ["0", "1", "2", "3"]
    assert len({p.pid for p in recorded.processes.values()}) == 1
    assert [r.value for r in recorded.of("step")] == [0, 1, 2, 3]


def test_threads_write_and_intern_names_concurrently(spool: Any) -> None:
    """Each record has its name, also one that many threads use for the first time at once."""
    spool.run(
        """
        import threading, sys, stepscope
        sys.setswitchinterval(1e-6)
        start = threading.Barrier(8)
        def work(k):
            start.wait()
            for n in range(300):
                with stepscope.annotate(f"name {n}"):
                    pass
            for n in range(5000):
                with stepscope.annotate(f"thread {k}", part=n % 3):
                    pass
        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        """
    )
    recorded = spool.drain()
    assert recorded.count("annotation") == {
        **{f"name {n}": 8 for n in range(300)},
        **{f"thread {k}": 5000 for k in range(8)},
    }
    for k in range(8):
        assert len({r.log for r in recorded.of("annotation", name=f"thread {k}")}) == 1
    assert all(r.end and not r.depth for r in recorded.records)
    labels = {r.labels for r in recorded.records if r.name.startswith("thread")}
    assert labels == {f'{{"part": {n}}}' for n in range(3)}


def test_a_process_describes_itself(spool: Any) -> None:
    spool.run(
        "import stepscope; stepscope.step()", "--lr", "1", RANK="3", LOCAL_RANK="1", WORLD_SIZE="x"
    )
    (process,) = spool.drain().processes.values()
    described = process.description
    assert (described["rank"], described["local_rank"]) == (3, 1)
    assert "world_size" not in described
    assert described["command"][-2:] == ["--lr", "1"]
    assert described["started_monotonic_ns"] > 0


def test_the_steps_that_a_script_marks_are_sampled_without_a_framework(spool: Any) -> None:
    spool.run(
        """
        import stepscope

        def add():
            return sum(range(3_000_000))

        for _ in stepscope.steps(range(10)):
            add()
        """
    )
    recorded = spool.drain()
    first, *_, last = recorded.of("step")
    during = [r.name for r in recorded.of("stacks") if first.end < r.start < last.end]
    assert any("add" in name for name in during)
    assert recorded.facts("stack_sampler")
