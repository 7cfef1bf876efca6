"""The binary span-log format between a job and its monitor.

In scope: the record, the segment file, the journal, the names of spool files, and their writer.
Standard library only, because the writer runs inside the job. Out of scope: the choice of what
to record (`capture`) and the processing of records (`monitor`).

A spool is one local directory per node and run:

    <spool>/schedule.json                  windows that are known before the job starts
    <spool>/recording-end                  time at which the recording of the processes ends
    <spool>/element-bytes                  bytes of the recorded elements of tensors
    <spool>/refusals                       errors for which processes have no directory
    <spool>/p-<pid>-<start ticks>-<n>/     one per process image (exec makes a new one)
        journal.jsonl                      process description, interned names, facts, notes
        <tid><class>-<k>.log               k-th segment of one thread's log
        <tid>r-<k>.rows                    k-th file of a log of rows: statistics of tensors
        drops                              number of records that had no room, by cause
        pulse                              heartbeat: a page shared by the process and the monitor
        collectives                        page: progress of the collectives of the process
        collectives-<n>.dump               content of the framework's recorder of collectives
        plan-<n>.json                      window, of the monitor or of the schedule
        window-<n>_<pid>.json              trace that the framework's profiler captured in it;
                                           .xplane.pb of JAX

Every record is written in place in a mapped file, so it survives any end of the process.
"""

from __future__ import annotations

from stepscope.spool.collective_dump import (
    DumpReason,
    parse_dump_name,
    read_dump,
    write_dump,
)
from stepscope.spool.collective_page import (
    ANSWER_WORD,
    ENDED_WORD,
    FINISHED_STEPS_WORD,
    QUESTION_WORD,
    STARTED_WORD,
    TRANSFERS_WORD,
    CollectivePage,
)
from stepscope.spool.drops import (
    FILE_NAME as DROPS_FILE,
    UNKNOWN_CAUSE,
    DropCounts,
    note_refusal,
    note_refusal_in_spool,
    parse_drops,
    read_refusal,
    read_refusals,
    reserve_refusals,
)
from stepscope.spool.element_budget import ElementBudget
from stepscope.spool.heartbeat import (
    BOUNDARY_WORD,
    DATA_WAIT_WORD,
    ISSUED_WORD,
    STEPS_WORD,
    Heartbeat,
    WindowState,
)
from stepscope.spool.journal import Journal, read_journal
from stepscope.spool.log import ROLL_WORD, SpanLog
from stepscope.spool.nan_search import AFTER_LOSS, FROM_START, NAN_SEARCH_VARIABLE
from stepscope.spool.page import PAGE_BYTES
from stepscope.spool.plan import (
    OPTIONS,
    Depth,
    Recorder,
    WindowPlan,
    finished_file,
    limit_duration,
    window_file,
)
from stepscope.spool.record import (
    CALLBACK_PREFIX,
    FIRST_SEQUENCE_WORD,
    HEADER_WORDS,
    MAGIC,
    RECORD_WORDS,
    SEGMENT_BYTES,
    SEGMENT_RECORDS,
    Flag,
    Kind,
    make_meta,
    pack_forward,
)
from stepscope.spool.recording_end import read_recording_end, write_recording_end
from stepscope.spool.row_log import (
    POWER_BINS,
    TENSOR_ELEMENTS,
    TENSOR_VALUES,
    RowLog,
    read_rows,
)
from stepscope.spool.step_schedule import (
    ScheduledWindows,
    StepSchedule,
    find_overlap,
    next_window,
    parse_step_schedule,
    read_schedules,
    write_schedules,
)
from stepscope.spool.tensor_plan import (
    COLLECTIONS,
    DEFAULT_RAW_LIMIT_BYTES,
    DEFAULT_TENSOR_INTERVAL,
    TENSORS_VARIABLE,
    TensorPlan,
)
from stepscope.spool.tree import (
    MIN_LIMIT_BYTES,
    ROWS,
    SHARED_MEMORY_FACTOR,
    SPOOL_VARIABLE,
    LogName,
    SpoolFullError,
    SpoolTree,
    is_monitor,
    is_suspended,
    machine_id,
    process_directory,
    process_is_alive,
    process_parent,
    process_start_ticks,
    read_process_fields,
    segment_bytes,
)

__all__ = [
    "AFTER_LOSS",
    "ANSWER_WORD",
    "BOUNDARY_WORD",
    "CALLBACK_PREFIX",
    "COLLECTIONS",
    "DATA_WAIT_WORD",
    "DEFAULT_RAW_LIMIT_BYTES",
    "DEFAULT_TENSOR_INTERVAL",
    "DROPS_FILE",
    "ENDED_WORD",
    "FINISHED_STEPS_WORD",
    "FIRST_SEQUENCE_WORD",
    "FROM_START",
    "HEADER_WORDS",
    "ISSUED_WORD",
    "MAGIC",
    "MIN_LIMIT_BYTES",
    "NAN_SEARCH_VARIABLE",
    "OPTIONS",
    "PAGE_BYTES",
    "POWER_BINS",
    "QUESTION_WORD",
    "RECORD_WORDS",
    "ROLL_WORD",
    "ROWS",
    "SEGMENT_BYTES",
    "SEGMENT_RECORDS",
    "SHARED_MEMORY_FACTOR",
    "SPOOL_VARIABLE",
    "STARTED_WORD",
    "STEPS_WORD",
    "TENSORS_VARIABLE",
    "TENSOR_ELEMENTS",
    "TENSOR_VALUES",
    "TRANSFERS_WORD",
    "UNKNOWN_CAUSE",
    "CollectivePage",
    "Depth",
    "DropCounts",
    "DumpReason",
    "ElementBudget",
    "Flag",
    "Heartbeat",
    "Journal",
    "Kind",
    "LogName",
    "Recorder",
    "RowLog",
    "ScheduledWindows",
    "SpanLog",
    "SpoolFullError",
    "SpoolTree",
    "StepSchedule",
    "TensorPlan",
    "WindowPlan",
    "WindowState",
    "find_overlap",
    "finished_file",
    "is_monitor",
    "is_suspended",
    "limit_duration",
    "machine_id",
    "make_meta",
    "next_window",
    "note_refusal",
    "note_refusal_in_spool",
    "pack_forward",
    "parse_drops",
    "parse_dump_name",
    "parse_step_schedule",
    "process_directory",
    "process_is_alive",
    "process_parent",
    "process_start_ticks",
    "read_dump",
    "read_journal",
    "read_process_fields",
    "read_recording_end",
    "read_refusal",
    "read_refusals",
    "read_rows",
    "read_schedules",
    "reserve_refusals",
    "segment_bytes",
    "window_file",
    "write_dump",
    "write_recording_end",
    "write_schedules",
]
