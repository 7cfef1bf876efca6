"""Documents of a run: launchers, trials, configuration, ranks that make no progress.

Configuration of a job's recording, and its changes while the job runs. A change is one document:
the complete new configuration. The monitors agree on one decision for each, in the order of their
numbers.
"""

from __future__ import annotations

import enum
from typing import Literal

import msgspec


class LauncherInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`launchers/<node>.json`: one `stepscope run` of a job of several, written once."""

    node: str
    """Name of its node in the run: `gpu01`, or `gpu01~2` for the second launcher there."""
    host: str
    """Name of the machine."""
    slot: str
    """Place of the launcher in the job: its host, and its rank if the launcher of the job has
    started it as one. A launcher that is started again has the slot of the earlier one."""
    incarnation: int
    """Lowest incarnation that its processes can be of."""
    registered_ns: int
    """Time of registration, epoch nanoseconds."""
    machine: str
    """Identifies the machine since its last start, and its space of process ids."""
    pid: int
    start_ticks: int
    """Clock ticks from the start of the machine to that of the launcher."""
    parent: str | None = None
    """Process that has started the launcher, as `<pid>-<start in clock ticks>`: the agent of
    torchrun, for a script that profiles itself; null if unknown."""


class Incarnation(msgspec.Struct, frozen=True, kw_only=True):
    """`incarnations/<number>.json`: one start of the training processes of a job, written by the
    first monitor that sees one of its processes."""

    number: int
    """Counted from 1."""
    world_size: int | None
    started_ns: int
    """Start of its first process, epoch nanoseconds."""
    node: str


class RankClaim(msgspec.Struct, frozen=True, kw_only=True):
    """`rank-claims/<incarnation>-<rank>.json`: the process that is this rank, written once."""

    node: str
    process: str


class JobStop(msgspec.Struct, frozen=True, kw_only=True):
    """`stops/<number>.json`: a request of a rule or a person that has stopped the job on one node,
    for the launchers of the others; written once."""

    node: str
    """Node on which it was stopped."""
    incarnation: int
    """Latest incarnation at that time. Launchers of later ones are not meant."""
    rule: str | None = None
    """Rule that has requested it."""
    by: str | None = None
    """Person who has requested it."""
    stopped_ns: int
    """Epoch nanoseconds."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """`leases/<number>.json`: the node that evaluates rules and writes the verdict, written once.

    The lease of the highest number is valid. Another node takes the next one if the holder has sent
    no heartbeat for a minute.
    """

    number: int
    """Counted from 1."""
    node: str
    taken_ns: int
    """Epoch nanoseconds."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change that can be made in a job without editing its script."""

    name: str
    value: str


class TrialPair(msgspec.Struct, frozen=True, kw_only=True):
    """Two trials next to each other in time: without and with the change."""

    base_step_ns: float
    """Mean step without the change, with everything between the steps."""
    changed_step_ns: float
    """Mean step with the change; of as many samples where the change concerns the batch size."""


class LossComparison(msgspec.Struct, frozen=True, kw_only=True):
    """First losses without and with a change, on the same order of data."""

    loss_count: int
    """Compared losses of a pair of trials."""
    max_relative_difference: float
    """Largest difference of a loss with the change from the one without, relative to the larger."""
    own_relative_difference: float
    """The same between trials without the change: the job's own variation."""


class TriedChange(msgspec.Struct, frozen=True, kw_only=True):
    """Measured effect of changes that were tried together.

    The saving of a pair is 1 - changed step / base step. The interval runs between two order
    statistics of these savings, so it assumes no distribution.
    """

    created_ns: int
    """Epoch nanoseconds."""
    changes: list[Change]
    fix_title: str | None = None
    """Fix of the verdict that recommends them, null without one."""
    cause: str = ""
    """Cause of the verdict."""
    predicted_saving_ratio: float | None = None
    """Predicted saving of that fix, as a share of the step."""
    is_predicted_bound: bool = False
    """True if the prediction is an upper bound of the saving."""
    pairs: list[TrialPair]
    saving_ratio: float
    """Median saving as a share of the step; negative for a longer step."""
    min_saving_ratio: float
    """Lower end of the interval."""
    max_saving_ratio: float
    """Upper end of the interval."""
    confidence_ratio: float
    """Probability that such an interval contains the median."""
    warmup_step_count: int
    """Steps before the measured ones, in each trial."""
    step_count: int
    """Measured steps of each trial without the change."""
    losses: LossComparison | None = None
    """Null where no losses could be compared."""
    is_isolated: bool
    """True if the files that the trials wrote were discarded."""
    node: str
    cores_available: float | None = None
    versions: dict[str, str] = {}
    """Versions of Python and torch in the trials."""

    @property
    def is_even(self) -> bool:
        """True if the interval contains no change."""
        return self.min_saving_ratio <= 0 <= self.max_saving_ratio


INTERVALS_MS = (100, 200, 500, 1000, 5000, 60000)
"""Sampling intervals that users may choose, in milliseconds."""

WindowMode = Literal["auto", "asked", "off"]
"""Detailed windows: automatic ones too, only those that are scheduled or requested, or none."""


class WindowSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """Schedule of windows from the start of the job, in steps or in time."""

    first_step: int | None = None
    """Number of steps before the first window."""
    step_count: int | None = None
    start_s: float | None = None
    """Seconds from the start of the job to the first window, for a schedule in time."""
    duration_s: float | None = None
    interval: float | None = None
    """Steps, or seconds, from one start to the next; None for a single window."""
    warmup_count: int = 0
    """Steps before each window for which the profiler runs and its records are discarded."""
    repeat_count: int | None = None
    """Number of windows of a schedule with an interval; None for no end."""
    depth: str = "full"
    options: list[str] = []
    min_start: float = 0
    """Steps, or seconds, before which no window starts: when the schedule was added to a running
    job."""


class RuleSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Rules that are evaluated while a job runs, and their parameters."""

    names: list[str] = []
    """Names, or `path.py:MyRule`; empty for all but `without`."""
    without: list[str] = []
    """Names of rules that are not evaluated, if `names` is empty."""
    config: str | None = None
    """File with parameters."""
    assignments: list[str] = []
    """`Name.parameter=value`; they win over the file, and later ones over earlier ones."""


class JobConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a job's recording that can change while it runs."""

    interval_ms: int
    """Milliseconds between samples of a node."""
    window: WindowMode
    schedules: list[WindowSchedule]
    rules: RuleSelection | None
    """None if no rule is evaluated while the job runs."""


class ConfigurationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`configuration-requests/<number>.json`: request to change the configuration of a job."""

    number: int
    """Requests are numbered from 1."""
    requested_ns: int
    """Epoch nanoseconds."""
    by: str
    """Who requested it, from where."""
    configuration: JobConfiguration


class ConfigurationDecision(msgspec.Struct, frozen=True, kw_only=True):
    """`configuration-decisions/<number>.json`: decision of the monitors on a request."""

    decided_ns: int
    """Time from which the change applies, epoch nanoseconds."""
    configuration: JobConfiguration | None
    """The new configuration; None if it was refused."""
    refusal: str | None = None
    """Reason of a refusal, one sentence."""


STUCK = "stuck"
"""Kind of the documents, one per node."""
STUCK_ALERT = "Stuck"
"""Name of the alert of a stuck job, where actions expect that of a rule."""


class RankState(enum.StrEnum):
    """State of a rank when its monitor asked."""

    ANSWERED = "answered"
    """It has told its stack and its collectives."""
    SILENT = "silent"
    """It runs and has not answered: a thread holds the interpreter lock."""
    SUSPENDED = "suspended"
    """A signal or a debugger has stopped it."""
    FINISHED = "finished"
    """Its script has ended."""
    FAILED = "failed"
    """An exception has ended its script."""
    KILLED = "killed"
    """It has ended without the interpreter, by a signal or an abort."""


class StackFrame(msgspec.Struct, frozen=True, kw_only=True):
    """Frame of a Python stack."""

    file: str
    line: int
    function: str
    text: str = ""
    """Source of the line, with secrets masked; only of the user's code."""


DEATHS = "deaths"
"""Kind of the documents, one per node on which the job has ended badly."""


class ProcessFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Uncaught exception, or fatal signal, that has ended a process."""

    pid: int
    t_ns: int
    """Epoch nanoseconds; 0 if unknown."""
    exception: str = ""
    """Type of the exception; empty for a signal."""
    message: str = ""
    """Message of the exception or name of the signal, with secrets masked."""
    is_relayed: bool = False
    """True for the exception of a launcher that says that one of its processes has failed."""
    frames: list[StackFrame] = []
    """Python stack, innermost first."""
    traceback: list[str] = []
    """Traceback as printed, with secrets masked."""
    shared_memory_bytes: int | None = None
    """Size of `/dev/shm` in the process; null if unknown."""
    shared_memory_free_bytes: int | None = None
    """Its free part at that moment."""


class NodeDeath(msgspec.Struct, frozen=True, kw_only=True):
    """`deaths/<node>.json`: how the job ended on a node, if not with success."""

    node: str
    is_forwarded: bool = False
    """True if `stepscope run` has passed a signal on to the job."""
    failures: list[ProcessFailure] = []
    """Failures of the last minute, in the order of time."""
    killed: list[str] = []
    """Processes that have ended without the interpreter, by a signal or `os._exit`."""
    group_kill_count: int | None = None
    """Processes of the control group of the job that the kernel has killed while the job ran, for
    want of memory; null if unknown."""
    machine_kill_count: int | None = None
    """The same for the whole machine."""
    output: list[str] = []
    """Last lines of the error output, with secrets masked."""
    output_missing: str | None = None
    """Why there are none, or not all."""


class CalledCollective(msgspec.Struct, frozen=True, kw_only=True):
    """Collective that a rank has called."""

    group: str
    number: int
    """Number within the group."""
    kind: str
    sizes: str = ""
    """Sizes of the inputs, or of the outputs without inputs."""
    dtypes: str = ""
    has_ended: bool = True
    t_ns: int = 0
    """Time of the call, epoch nanoseconds."""
    peer: int | None = None
    """Other rank of a transfer between two ranks; null for a collective."""


class RankAccount(msgspec.Struct, frozen=True, kw_only=True):
    """State and collectives of one rank."""

    rank: int
    process: str
    pid: int
    state: RankState
    detail: str = ""
    """Exception that has ended the script, or why there is no stack."""
    frames: list[StackFrame] = []
    """Stack of the main thread, innermost first."""
    calls: list[CalledCollective] = []
    """Latest collectives and transfers between two ranks, in the order of the calls."""
    is_last_read: bool = False
    """True if the calls are complete: the process was read when it was asked, or when it ended."""
    started_count: int | None = None
    """Collectives that it has started, over all groups; null if unknown."""


class ThreadAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Thread of a process of a job that makes no progress."""

    name: str
    is_main: bool
    state: str = ""
    """State in the kernel, a letter of proc(5): S sleeps, D waits for a device, R runs."""
    wait_channel: str = ""
    """Function of the kernel in which it waits; empty if it is hidden."""
    frames: list[StackFrame] = []
    """Stack, innermost first."""


class ProcessAccount(msgspec.Struct, frozen=True, kw_only=True):
    """State of one process of a job that makes no progress."""

    pid: int
    parent_pid: int
    role: str
    """main, dataloader_worker, worker or program; child for one that is not recorded."""
    state: RankState
    detail: str = ""
    """Reason why there is no stack, or exception that has ended it."""
    rank: int | None = None
    worker: int | None = None
    """Number of a DataLoader worker."""
    command: str = ""
    """Program and script, with secrets masked."""
    has_trained: bool = False
    """True once a step has ended in it."""
    cpu_ratio: float | None = None
    """CPU time since the last progress, as a share of one core; null if unknown."""
    stack_since_ns: int | None = None
    """Time since which its sampled stack is the same, epoch nanoseconds; null without samples."""
    threads: list[ThreadAccount] = []
    """Threads with a stack, the sampled one first."""


class StuckNode(msgspec.Struct, frozen=True, kw_only=True):
    """`stuck/<node>.json`: ranks of a node while nothing moves, replaced by its monitor."""

    node: str
    since_ns: int
    """Time of the last progress of any rank of the node, epoch nanoseconds."""
    seen_ns: int
    """Time of this state, epoch nanoseconds."""
    resolved_ns: int | None = None
    """Time at which the job went on; null while it does not."""
    has_ended: bool = False
    """True if the job has ended, not by itself with success."""
    was_stuck: bool = True
    """False for an account of a job that did not get stuck before it failed."""
    limit_ns: int
    """Time without progress from which the job counts as stuck. Ranks are asked earlier before the
    first step, and where another node is stuck."""
    groups: dict[str, list[int]] = {}
    """Ranks of process groups by name."""
    descriptions: dict[str, str] = {}
    """Purpose of process groups by name."""
    ranks: list[RankAccount] = []
    processes: list[ProcessAccount] = []
    """Processes of a job that waits for none of its ranks."""

    @property
    def has_reached_limit(self) -> bool:
        """True once the node has made no progress for so long that its job counts as stuck."""
        return self.seen_ns - self.since_ns >= self.limit_ns
