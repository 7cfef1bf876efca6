"""Stack samples from the start of the interpreter on, and the times of a process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from stepscope.capture import frames
from stepscope.capture.stack_reading import read_frames
from stepscope.capture.stack_texts import IMPORT_TEXT, Budget, StackTexts

PREPARE = """
import os, sys, time
from stepscope.capture import session, startup
startup.PROGRAM_AGE_NS = startup.WRITING_NS = 100_000_000
startup.FORK_ALLOWANCE_NS = 10**12

def prepare(condition):
    while not condition():
        sum(range(100))

def is_sampled(function):
    sampler = startup._sampler
    return sampler and any(code is function.__code__ for code, _, _ in sampler._last)

"""
"""Start of a script that works in a function until a condition holds."""


def functions(samples: list[Any]) -> list[list[str]]:
    """Return the names of the functions of samples, outermost first, without numbers of calls."""
    return [
        [frame.partition("|")[0].partition("<call")[0] for frame in record.name.split(";")]
        for record in samples
    ]


def test_a_program_is_recorded_from_its_start_to_its_end(spool: Any) -> None:
    """It imports nothing of a framework and annotates nothing."""
    spool.run(f"{PREPARE}prepare(session.is_open)\nprepare(lambda: True)", RANK="3")
    recorded = spool.drain()
    assert not recorded.processes
    (program,) = recorded.programs.values()
    described, samples = program.description, recorded.start_samples
    launched, ready = described["launched_monotonic_ns"], described["ready_monotonic_ns"]
    assert program.end is not None
    assert launched < ready < samples[0].start <= samples[-1].start <= program.end["t_ns"]
    assert len(samples) > 1
    assert {("<module>", "prepare")} <= {tuple(names[:2]) for names in functions(samples)}
    assert any(fact["name"] == "prepare" for fact in recorded.facts("function"))


def test_a_short_process_that_records_nothing_writes_nothing(spool: Any) -> None:
    spool.run("print(1)")
    assert not list(spool.path.iterdir())


def test_modules_beside_the_script_do_not_run_in_the_thread_of_the_sampler(
    spool: Any, tmp_path: Path
) -> None:
    """A script `tokenize.py` may do anything where it is imported."""
    for name in ("contextlib", "enum", "json", "linecache", "opcode", "re", "token", "tokenize"):
        (tmp_path / f"{name}.py").write_text("import os\nos.write(1, b'has run')\n")
    waiting = "prepare(lambda: session.is_open() and startup._sampler._writer)"
    done = spool.run(f"{PREPARE}os.chdir({str(tmp_path)!r})\n{waiting}\nprint('done')")
    assert done.stdout == "done\n"


@pytest.mark.parametrize(("switch", "threads"), [("off", 1), ("on", 2)])
def test_a_job_that_needs_a_process_of_one_thread(spool: Any, switch: str, threads: int) -> None:
    code = "import os\nprint(len(os.listdir('/proc/self/task')))"
    assert spool.run(code, STEPSCOPE_START_SAMPLES=switch).stdout == f"{threads}\n"


def test_what_a_process_did_before_its_first_record_is_kept(spool: Any) -> None:
    """The process is described again at its first record: only then its rank may be known."""
    spool.run(
        f"""{PREPARE}
prepare(session.is_open)
os.environ["RANK"] = "2"
import stepscope
first_ns = time.monotonic_ns()
stepscope.step(1)
print(first_ns)
"""
    )
    recorded = spool.drain()
    assert not recorded.programs
    (process,) = recorded.processes.values()
    assert process.description["rank"] == 2
    (step,) = recorded.of("step")
    assert process.description["started_monotonic_ns"] <= step.start
    assert recorded.start_samples[0].start < step.start
    assert any("prepare" in names for names in functions(recorded.start_samples))


def test_the_step_sampler_takes_over_and_hands_back(spool: Any) -> None:
    """Of the thread that trains; when it has ended, the main thread is sampled again."""
    spool.run(
        f"""{PREPARE}
import threading
from stepscope.capture import stacks
import stepscope
with stepscope.annotate("begin"):
    pass

def train():
    stacks.watch_this_thread(0.005)
    metas = session.current().metas
    prepare(lambda: any("train|" in str(key) for key in list(metas)))

def export():
    prepare(lambda: is_sampled(export))

trainer = threading.Thread(target=train)
trainer.start()
trainer.join()
export()
"""
    )
    recorded = spool.drain()
    steps = functions([r for r in recorded.records if r.table == "stacks"])
    assert any("train" in names for names in steps)
    assert not any("export" in names for names in steps)
    assert any("export" in names for names in functions(recorded.start_samples))


def test_samples_go_on_after_a_fork_without_a_thread_in_the_child(spool: Any) -> None:
    """Python 3.12 warns about a fork with several threads, and `-W error` makes it fatal."""
    spool.run(
        f"""{PREPARE}
def tasks():
    return len(os.listdir("/proc/self/task"))

def after():
    prepare(lambda: is_sampled(after) and session.is_open())

for turn in range(5):
    pid = os.fork()
    if not pid:
        import json, decimal
        os._exit(tasks())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
assert tasks() == 2
after()
""",
        flags=("-W", "error"),
    )
    recorded = spool.drain()
    assert len(recorded.programs) == 1
    assert any("after" in names for names in functions(recorded.start_samples))


@pytest.mark.parametrize("end", ["os._exit(0)", "os.execv('/bin/true', ['true'])", "sys.exit(0)"])
def test_a_process_may_end_at_any_time(spool: Any, end: str) -> None:
    spool.run(f"{PREPARE}prepare(session.is_open)\n{end}")
    (program,) = spool.drain().programs.values()
    assert (program.end is None) == (end != "sys.exit(0)")


def test_signals_that_the_job_waits_for_reach_it(spool: Any) -> None:
    """The kernel may deliver a signal to any thread that does not block it."""
    spool.run(
        """
        import os, signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        os.kill(os.getpid(), signal.SIGUSR1)
        assert signal.sigwait({signal.SIGUSR1}) == signal.SIGUSR1
        """
    )


def chain(depth: int, leaf: Any) -> Any:
    """Call *leaf* below as many frames of this function."""
    return chain(depth - 1, leaf) if depth else leaf()


def test_a_deep_stack_keeps_both_ends_and_the_innermost_user_function(
    recording: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the frames of this file are a library's, but for those of one function."""

    def user_function() -> Any:
        return chain(60, lambda: read_frames(sys._getframe()))

    def outer_function() -> Any:
        return chain(60, user_function)

    walked = outer_function()
    is_user = {user_function.__code__, outer_function.__code__}
    monkeypatch.setattr(
        frames.Libraries, "find", lambda _, code: "" if code in is_user else "library"
    )
    selected = frames.shorten(walked, frames.Libraries())
    assert len(selected) == frames.MAX_FRAMES < len(walked)
    assert selected[0] == walked[0]
    assert selected[-16:] == walked[-16:]
    assert [code for code, _, _ in selected if code in is_user] == [
        user_function.__code__, outer_function.__code__,
    ]  # fmt: skip
    positions = [walked.index(frame) for frame in selected if frame[0] in is_user]
    assert positions == sorted(positions)


def test_imports_are_one_frame_each_and_one_module_of_each_library_at_both_ends(
    spool: Any, tmp_path: Any
) -> None:
    packages = tmp_path / "site-packages"
    package = packages / "deep"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from deep import m0")
    for n in range(9):
        (package / f"m{n}.py").write_text(f"from deep import m{n + 1}")
    (package / "m9.py").write_text(
        "from stepscope.capture import session, startup\n"
        "startup.PROGRAM_AGE_NS = startup.WRITING_NS = 10**8\n"
        "def load():\n  end()\ndef end():\n  while not session.is_open(): pass\nload()"
    )
    spool.run("import deep", PYTHONPATH=f"{spool.environment()['PYTHONPATH']}:{packages}")
    recorded = spool.drain()
    texts = [r.name for r in recorded.start_samples if ";load|" in r.name]
    assert texts
    for text in texts:
        names = [frame.split("|")[0].partition("<call")[0] for frame in text.split(";")]
        assert names[:6] == ["<module>", "import", "<module>", "import", "<module>", "load"]
        assert text.split(";")[1] == IMPORT_TEXT
        assert "/deep/__init__.py|deep;" in text.split(IMPORT_TEXT)[1]
        assert "/deep/m9.py|deep;" in text.split(IMPORT_TEXT)[2]


def test_each_sampler_has_room_for_functions_and_lines(recording: Any) -> None:
    from stepscope.capture import session

    current = session.current()
    assert current is not None
    texts = StackTexts(current)
    walked = read_frames(sys._getframe())
    used = Budget()
    used.functions_left = used.lines_left = 0
    texts.describe(walked, used)
    name = sys._getframe().f_code.co_name
    assert not any(fact["name"] == name for fact in recording.drain().facts("function"))
    texts.describe(walked, Budget())
    assert any(fact["name"] == name for fact in recording.drain().facts("function"))
    assert recording.drain().facts("source")


def test_a_process_tells_the_stacks_of_its_threads_when_it_is_asked(spool: Any) -> None:
    """By the sampler of the start, and by that of training; no thread of the job takes part."""
    spool.run(
        f"""{PREPARE}
import json, threading
from stepscope.capture import stacks, thread_stacks
from stepscope.spool import ask_for_stacks, read_answer
thread_stacks.LOOK_INTERVAL_NS = 0
prepare(session.is_open)
directory = session.begin().directory
release = threading.Event()
other = threading.Thread(target=release.wait, name="loader")
other.start()

def ask(number):
    ask_for_stacks(directory, number)
    prepare(lambda: f'"question": {{number}}'.encode() in read_answer(directory))
    main, loader = json.loads(read_answer(directory))["stacks"]
    assert main["is_main"] and main["native_id"] == threading.get_native_id()
    assert [name for _, _, name in main["frames"]][-2:] == ["ask", "<module>"], main
    assert loader["thread"] == "loader"

ask(1)
stacks.watch_this_thread(0.01)
ask(2)
release.set()
"""
    )
