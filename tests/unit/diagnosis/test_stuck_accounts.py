"""Accounts of several nodes, joined: what is known of a job that makes no progress."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stepscope.diagnosis import explain_stuck, find_stuck, read_stuck_nodes
from stepscope.run import Run
from stepscope.schema import (
    STUCK,
    CalledCollective,
    JobState,
    JobStatus,
    RankAccount,
    RankState,
    StackFrame,
    StuckNode,
)
from stepscope.store import RunWriter, create_run, open_run
from tests.support.report_runs import RunFiles
from tests.support.store_rows import INFO

S = 1_000_000_000
LIMIT_S = 30


def account(rank: int, count: int, *, waits: bool, **fields: Any) -> RankAccount:
    """Account of a rank that has called *count* collectives."""
    calls = [
        CalledCollective(group="0", number=n, kind="all_reduce", has_ended=not waits or n < count)
        for n in range(1, count + 1)
    ]
    values = {"process": "", "pid": 1, "state": RankState.ANSWERED, "calls": calls}
    return RankAccount(rank=rank, **(values | fields))


def node(name: str, ranks: list[RankAccount], *, age_s: int, **fields: Any) -> StuckNode:
    times = {"since_ns": 100 * S, "seen_ns": (100 + age_s) * S, "limit_ns": LIMIT_S * S}
    return StuckNode(node=name, ranks=ranks, **(times | {"groups": {"0": [0, 1]}} | fields))


def explain(*ranks: RankAccount, age_s: int = LIMIT_S + 5) -> Any:
    """Explain the account of one node."""
    return explain_stuck({"a": node("a", list(ranks), age_s=age_s)})


FIRST = account(0, 5, waits=True)


def test_no_rank_is_blamed_before_its_node_has_told_where_it_is() -> None:
    first = node("a", [FIRST], age_s=LIMIT_S + 5)
    assert explain_stuck({"a": first}) is None
    second = node("b", [account(1, 4, waits=False)], age_s=LIMIT_S + 5)
    stuck = explain_stuck({"a": first, "b": second})
    assert stuck.culprits == [1]


def test_a_rank_that_is_not_heard_of_is_not_said_to_be_missing() -> None:
    stuck = explain(FIRST, age_s=LIMIT_S + 20)
    assert (stuck.culprits, stuck.kind, stuck.is_stuck) == ([], "unknown", False)
    assert stuck.headline.endswith("number 5 of process group 0: nothing is known of rank 1.")


def test_ranks_that_wait_for_the_first_step_are_described_and_not_stuck() -> None:
    starting = node("a", [FIRST, account(1, 4, waits=False)], age_s=LIMIT_S - 1)
    stuck = explain_stuck({"a": starting})
    assert (stuck.kind, stuck.is_stuck, stuck.culprits) == ("starting", False, [1])
    assert stuck.headline == (
        "No step has ended yet, and the job has waited 29 s at all_reduce, number 5 of process "
        "group 0: rank 1 has not called it."
    )
    # A step has ended on another node.
    assert explain_stuck({"a": starting, "b": node("b", [], age_s=LIMIT_S)}).is_stuck
    stuck = explain(make_receiver(0, 1), account(1, 0, waits=False), age_s=LIMIT_S - 1)
    assert (stuck.kind, stuck.is_stuck) == ("starting", False)


@pytest.mark.parametrize(("incarnation", "is_current"), [(1, False), (2, True)])
def test_a_restart_ends_the_accounts_of_nodes_that_do_not_take_part(
    tmp_path: Path, incarnation: int, is_current: bool
) -> None:
    create_run(tmp_path / "run", INFO)
    status = JobStatus(state=JobState.IN_PROGRESS, heartbeat_ns=0, started_ns=0)
    for name, number in (("lost", incarnation), ("other", 2)):
        with RunWriter(tmp_path / "run", name) as writer:
            writer.put_status(msgspec.structs.replace(status, incarnation=number))
            if name == "lost":
                writer.put_document(STUCK, name, node(name, [FIRST], age_s=60))
    assert bool(read_stuck_nodes(open_run(tmp_path / "run"))) is is_current


@pytest.mark.parametrize(("hosts", "culprits"), [(("h", "h"), [1]), (("h", "i"), None)])
def test_which_rank_ended_first_is_told_by_one_clock(
    tmp_path: Path, hosts: tuple[str, str], culprits: list[int] | None
) -> None:
    files = RunFiles(tmp_path / "run")
    for rank, (name, host) in enumerate(zip("ab", hosts, strict=True)):
        files.node(name, cores=1, seconds=10, host=host)
        process = files.process(f"{rank}-1-0", name, 100 + rank, rank=rank)
        files.spans(process, "forward", np.array([5.0 - rank]), np.array([0.5]))
        fields = {"process": process.process, "pid": process.pid, "state": RankState.KILLED}
        killed = account(rank, 3, waits=True, **fields)
        with RunWriter(files.path, name) as writer:
            ended = node(name, [killed], age_s=0, has_ended=True, was_stuck=False, groups={})
            writer.put_document(STUCK, name, ended)
    stuck = find_stuck(Run(open_run(files.path)))
    assert (None if stuck is None else stuck.culprits) == culprits


def test_nothing_is_said_of_a_rank_whose_host_was_lost(tmp_path: Path) -> None:
    """The other one failed, and has the last records of its own calls."""
    files = RunFiles(tmp_path / "run")
    files.node("a", cores=1, seconds=10)
    process = files.process("0-1-0", "a", 100, rank=0)
    failed = {"process": process.process, "pid": process.pid, "state": RankState.FAILED}
    failed |= {"detail": "exit status 1", "is_last_read": True, "started_count": 3}
    ended = node(
        "a", [account(0, 3, waits=False, **failed)], age_s=0, has_ended=True, was_stuck=False
    )
    with RunWriter(files.path, "a") as writer:
        writer.put_document(STUCK, "a", ended)
    assert find_stuck(Run(open_run(files.path))) is None


@pytest.mark.parametrize(
    ("file", "function", "is_checkpoint"),
    [
        ("/env/torch/serialization.py", "_save", True),
        ("/env/safetensors/torch.py", "save_file", True),
        ("/env/numpy/lib/_npyio_impl.py", "savez", True),
        ("/env/torch/distributed/checkpoint/state_dict_saver.py", "save", True),
        ("/job/train.py", "Trainer.save_checkpoint", True),
        ("/job/train.py", "write_checkpoint", True),
        ("/env/torch/serialization.py", "load", False),
        ("/env/torch/utils/checkpoint.py", "checkpoint", False),
        ("/job/train.py", "save_metrics", False),
    ],
)
def test_a_rank_that_writes_a_checkpoint_is_no_fault(
    file: str, function: str, *, is_checkpoint: bool
) -> None:
    frames = [StackFrame(file="/job/io.py", line=3, function="copy")]
    frames.append(StackFrame(file=file, line=9, function=function))
    stuck = explain(FIRST, account(1, 4, waits=False, frames=frames))
    assert (stuck.kind == "checkpoint", stuck.is_stuck) == (is_checkpoint, not is_checkpoint)


def test_a_rank_that_saves_while_another_one_waits_for_its_transfer_is_no_fault() -> None:
    frame = StackFrame(file="/env/torch/serialization.py", line=5, function="save")
    saver = account(1, 0, waits=False, frames=[frame])
    stuck = explain(make_receiver(0, 1), saver, age_s=40)
    assert stuck.kind == "checkpoint"
    assert stuck.headline == (
        "Not stuck: rank 1 writes a checkpoint, for which rank 0 has waited 40 s at "
        "irecv (4 float32) from rank 1."
    )


def test_a_rank_that_waits_for_a_transfer_is_not_blamed_for_a_collective() -> None:
    """Rank 1 has not called the all-reduce because it waits for rank 2."""
    stuck = explain(FIRST, make_receiver(1, 2), account(2, 4, waits=False))
    assert stuck.culprits == [2]
    assert stuck.headline.endswith("at which rank 1 waits: rank 2 has not sent it.")
    assert explain(make_receiver(0, 1)) is None, "rank 1 was not read"


C10D = "/env/torch/distributed/distributed_c10d.py"


@pytest.mark.parametrize(
    ("file", "function", "text", "waits"),
    [
        (C10D, "recv", "", False),  # for what it receives, not for its open send
        (C10D, "send", "", True),
        (C10D, "isend", "", True),
        (C10D, "batch_isend_irecv", "", True),
        (C10D, "init_process_group", "", False),
        ("/env/torch/distributed/pipelining/schedules.py", "_wait_batch_p2p", "", True),
        ("/env/torch/distributed/checkpoint/storage.py", "read", "", False),
        ("/env/torch/distributed/rpc/api.py", "_wait_all", "", False),
        ("/env/trio/_core.py", "wait_readable", "", False),
        ("/usr/lib/python3.12/threading.py", "Condition.wait", "", False),
        ("/job/train.py", "main", "for work in works: work.wait()", True),
        ("/job/train.py", "main", "rows = await reader.read()", False),
        ("/job/train.py", "wait_for_data", "time.sleep(1)  # wait", False),
    ],
)
def test_a_rank_waits_for_its_open_send_only_in_a_call_that_waits(
    file: str, function: str, text: str, *, waits: bool
) -> None:
    """Rank 1 has not received, and rank 0 has sent to it in the background."""
    frame = StackFrame(file=file, line=7, function=function, text=text)
    sender = make_receiver(0, 1, kind="isend", frames=[frame])
    stuck = explain(sender, account(1, 0, waits=False), age_s=40)
    assert (None if stuck is None else stuck.culprits) == ([1] if waits else None)


WAITING = StackFrame(file="/job/train.py", line=5, function="main", text="work.wait()")


def make_receiver(
    rank: int, peer: int, kind: str = "irecv", frames: Sequence[StackFrame] = (WAITING,)
) -> RankAccount:
    """Account of a rank that waits for a transfer."""
    fields = {"sizes": "4", "dtypes": "float32", "has_ended": False, "peer": peer}
    call = CalledCollective(group="0", number=3, kind=kind, **fields)
    return account(rank, 0, waits=False, calls=[call], frames=list(frames))
