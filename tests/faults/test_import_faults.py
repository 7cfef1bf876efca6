"""Killed, interrupted and failing imports: one sentence, no process and no partial run is left."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.importers.kineto._scan import scanner_state
from stepscope.run.model.traces import load_traces
from stepscope.schema import SCHEMA_VERSION, RunInfo
from stepscope.store import create_run, open_run
from tests.support.kineto_files import op, trace, training
from tests.support.tiers import extend_all_but
from tests.support.waiting import wait_until

StoreWindow = Callable[..., subprocess.Popen[str]]
COMMAND = "import sys; sys.argv[0] = 'stepscope'; from stepscope.cli import main; main()"
SMALL_BLOCKS = """
    from stepscope.importers.kineto import blocks, importer, reading
    blocks.BLOCK_BYTES = 20_000
    reading.SERIAL_BYTES = 0
    importer.available_processes = lambda: 2
"""
IN_PROCESSES = f"""{SMALL_BLOCKS}
    import os
    os.environ["STEPSCOPE_SCANNER"] = "python"  # with the compiled scanner, threads decode
"""
KILL_A_DECODER = """
    import os
    from stepscope.importers.kineto import pool
    decode = pool.decode_block
    def decode_or_die(block):
        if block.offset > 100_000:
            os.kill(os.getpid(), 9)
        return decode(block)
    pool.decode_block = decode_or_die
"""
WAIT_FOREVER = """
    import pathlib, signal
    from stepscope.importers.kineto import pool
    def wait(*arguments, **options):
        with pathlib.Path("waiting").open("a") as file:
            file.write("x")
        while True:
            signal.pause()
    pool.decode_block = wait
"""
in_detail = pytest.mark.extended(
    "another import that fails; test_a_decoder_is_killed leaves nothing either"
)


def python(directory: Path, code: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a process that runs some code, in a new process group."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def import_with(directory: Path, changes: str, *arguments: str) -> subprocess.Popen[str]:
    """Start the command with some functions replaced."""
    return python(directory, textwrap.dedent(changes) + COMMAND, "import", *arguments)


def one_sentence(process: subprocess.Popen[str]) -> str:
    """Check that a process fails with one sentence, and return it."""
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2, errors
    assert len(errors.splitlines()) == 1, errors
    assert errors.startswith("stepscope: ")
    return errors


def is_group_empty(process: subprocess.Popen[str]) -> bool:
    """Return True if no process of a process group is running."""
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """Make a trace of some hundred blocks of 20,000 bytes."""
    length = [100 + n * 7_919 % 800 for n in range(10_000)]
    events = [op(f"op{n % 7}", 1_000 * n, length[n], external=n + 1) for n in range(10_000)]
    (tmp_path / "big.json").write_bytes(trace(*training(), *events))
    return tmp_path / "big.json"


def test_a_decoder_is_killed(tmp_path: Path, big: Path) -> None:
    process = import_with(tmp_path, IN_PROCESSES + KILL_A_DECODER, "big.json", "-o", "run")
    assert "big.json: a process that decoded it was killed" in one_sentence(process)
    assert not (tmp_path / "run").exists()
    assert is_group_empty(process)


@in_detail
def test_one_of_several_importers_is_killed(tmp_path: Path, big: Path) -> None:
    (tmp_path / "small.json").write_bytes(trace(*training()))
    changes = IN_PROCESSES + KILL_A_DECODER + "    reading.decode_all = pool.decode_all\n"
    process = import_with(tmp_path, changes, "small.json", "big.json", "-o", "run")
    assert "was killed" in one_sentence(process)
    assert not (tmp_path / "run").exists()
    assert is_group_empty(process)


@pytest.mark.parametrize(
    "number", extend_all_but({signal.SIGINT}, [signal.SIGINT, signal.SIGTERM], "another signal")
)
@pytest.mark.parametrize(
    "sources",
    extend_all_but([["big.json"]], [["big.json"], ["big.json", "copy.json"]], "two traces"),
)
def test_interrupted(tmp_path: Path, big: Path, sources: list[str], number: signal.Signals) -> None:
    """SIGINT is sent to the process group, as by a terminal; SIGTERM only to the command."""
    (tmp_path / "copy.json").write_bytes(big.read_bytes())
    process = import_with(tmp_path, IN_PROCESSES + WAIT_FOREVER, *sources, "-o", "run")
    waiting = tmp_path / "waiting"
    wait_until(
        lambda: waiting.exists() and len(waiting.read_text()) == 2, waiting_for="two workers"
    )
    (os.killpg if number is signal.SIGINT else os.kill)(process.pid, number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in errors
    assert is_group_empty(process)
    assert not (tmp_path / "run").exists()


@in_detail
@pytest.mark.skipif(not scanner_state()[0], reason="the compiled scanner is not built")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_while_threads_decode(
    tmp_path: Path, big: Path, number: signal.Signals
) -> None:
    changes = """
    import pathlib, threading
    from stepscope.importers.kineto import pool
    decode = pool.decode_block
    def decode_slowly(block):
        pathlib.Path("thread").write_text(threading.current_thread().name)
        threading.Event().wait(0.5)  # much longer than the signal takes
        return decode(block)
    pool.decode_block = decode_slowly
    """
    process = import_with(tmp_path, SMALL_BLOCKS + changes, "big.json", "-o", "run")
    wait_until((tmp_path / "thread").exists, waiting_for="a thread")
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in errors
    assert (tmp_path / "thread").read_text().startswith("ThreadPoolExecutor")
    assert not (tmp_path / "run").exists()


@in_detail
def test_the_command_itself_is_killed(tmp_path: Path, big: Path) -> None:
    """Its workers detect that and exit."""
    changes = """
    import os
    from stepscope.importers.kineto.gather import Gathered
    Gathered.add = lambda *_: os.kill(os.getpid(), 9)
    """
    process = import_with(tmp_path, SMALL_BLOCKS + changes, "big.json", "-o", "run")
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    wait_until(lambda: is_group_empty(process), waiting_for="the end of the workers")
    assert load_traces(open_run(tmp_path / "run")) == []


@pytest.mark.parametrize("limit", extend_all_but({1_000}, [1_000, 5_000], "another limit"))
def test_the_disk_is_full(tmp_path: Path, big: Path, limit: int) -> None:
    """Simulated by a limit on the size of files."""
    changes = f"""
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
    """
    process = import_with(tmp_path, changes, "big.json", "-o", "run")
    one_sentence(process)
    assert not (tmp_path / "run").exists()
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


@in_detail
def test_no_room_for_the_temporary_file(tmp_path: Path, big: Path) -> None:
    changes = """
    import resource
    from stepscope.importers.kineto import gather
    gather.MEMORY_BYTES = 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    """
    one_sentence(import_with(tmp_path, changes, "big.json", "-o", "run"))
    assert not (tmp_path / "run").exists()


CHANGED_FILE = """
    import os
    from stepscope.importers.kineto import pool
    decode = pool.decode_block
    def change_and_decode(block):
        if block.offset > 100_000:
            {}
        return decode(block)
    pool.decode_block = change_and_decode
"""


@in_detail
@pytest.mark.parametrize("change", ["os.truncate('big.json', 50_000)", "os.unlink('big.json')"])
@pytest.mark.parametrize("sources", [[], ["small.json"]])
def test_the_file_changes_while_it_is_read(
    tmp_path: Path, big: Path, change: str, sources: list[str]
) -> None:
    (tmp_path / "small.json").write_bytes(trace(*training()))
    changes = SMALL_BLOCKS + CHANGED_FILE.format(f"os.path.exists('big.json') and {change}")
    process = import_with(tmp_path, changes, "big.json", *sources, "-o", "run")
    if not sources:
        assert "big.json cannot be read" in one_sentence(process)
        assert not (tmp_path / "run").exists()
        return
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0  # the other trace was imported
    assert "big.json cannot be read" in errors
    assert [imported.name for imported in load_traces(open_run(tmp_path / "run"))] == ["small.json"]


# --- the monitor's child ---------------------------------------------------------------------


@pytest.fixture
def store_window(tmp_path: Path) -> StoreWindow:
    """Function that stores a window in a run, with some functions of the importer replaced."""
    info = RunInfo(
        schema_version=SCHEMA_VERSION, run_id="r", created_ns=0, command=[],
        working_directory="/", stepscope_version="0",
    )  # fmt: skip
    create_run(tmp_path / "run", info)

    def store(name: str, changes: str = "", *, window: int = 0) -> subprocess.Popen[str]:
        code = textwrap.dedent(changes) + (
            "import runpy, sys\n"
            "runpy.run_module('stepscope.importers', run_name='__main__', alter_sys=True)\n"
        )
        options = ["--run", "run", "--node", "n0", "--process", "7-1-0", "--rank", "3"]
        return python(tmp_path, code, *options, "--window", str(window), name)

    return store


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, errors = process.communicate(timeout=60)
    assert not output
    return process.returncode, errors


def stored(run: Path) -> dict[str, int]:
    """Return the number of rows by table, as read from the run."""
    (stored_trace,) = load_traces(open_run(run))
    assert (stored_trace.process, stored_trace.window, stored_trace.rank, stored_trace.node) == (
        "7-1-0",
        0,
        3,
        "n0",
    )
    tables = ("operators", "kernels", "copies", "runtime_calls", "annotations", "memory_events")
    return {table: len(stored_trace.columns(table, ["id"])["id"]) for table in tables}


def test_a_window_is_stored_once(tmp_path: Path, store_window: StoreWindow) -> None:
    (tmp_path / "window.json").write_bytes(trace(*training()))
    assert finished(store_window("window.json")) == (0, "")
    first = stored(tmp_path / "run")
    assert finished(store_window("window.json")) == (0, "")
    assert stored(tmp_path / "run") == first
    assert open_run(tmp_path / "run").row_count("operators") == first["operators"]


def test_a_window_file_that_is_not_a_trace(tmp_path: Path, store_window: StoreWindow) -> None:
    (tmp_path / "window.json").write_bytes(b"no trace")
    code, errors = finished(store_window("window.json"))
    assert (code, len(errors.splitlines())) == (2, 1)
    assert load_traces(open_run(tmp_path / "run")) == []


def test_a_window_that_cannot_be_written_can_be_imported_again(
    tmp_path: Path, store_window: StoreWindow
) -> None:
    (tmp_path / "window.json").write_bytes(trace(*training()))
    full = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1_500, 1_500))\n"
    code, errors = finished(store_window("window.json", full))
    assert code == 75
    assert "Traceback" not in errors
    assert load_traces(open_run(tmp_path / "run")) == []
    assert finished(store_window("window.json")) == (0, "")
    assert sum(stored(tmp_path / "run").values()) > 5


@pytest.mark.parametrize(
    "table",
    extend_all_but(
        {"traces"}, ["operators", "copies", "tracks", "quality", "traces"], "another table"
    ),
)
@pytest.mark.parametrize("after", [False, True])
def test_a_window_whose_import_was_killed(
    tmp_path: Path, store_window: StoreWindow, table: str, after: bool
) -> None:
    """The next attempt completes it, and readers ignore the rows of the first one."""
    kill = f"""
    import os
    from stepscope.store import RunWriter
    append = RunWriter.append
    def append_or_die(writer, table, columns):
        if table == "{table}" and not {after}:
            os.kill(os.getpid(), 9)
        append(writer, table, columns)
        if table == "{table}":
            os.kill(os.getpid(), 9)
    RunWriter.append = append_or_die
    """
    (tmp_path / "window.json").write_bytes(trace(*training()))
    code, _ = finished(store_window("window.json", kill))
    assert code == -signal.SIGKILL
    visible = len(load_traces(open_run(tmp_path / "run")))
    assert visible == (table == "traces" and after)
    assert finished(store_window("window.json")) == (0, "")
    assert stored(tmp_path / "run") == {
        "operators": 2, "kernels": 1, "copies": 1, "runtime_calls": 2,
        "annotations": 2, "memory_events": 1,
    }  # fmt: skip
