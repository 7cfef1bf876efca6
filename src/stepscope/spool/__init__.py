"""The binary span-log format between a job and its monitor.

In scope: the record, the segment file, the journal, the names of spool files, and their writer.
Standard library only, because the writer runs inside the job. Out of scope: the choice of what
to record (`capture`) and the processing of records (`monitor`).

A spool is one local directory per node and run:

    <spool>/schedule.json                  windows that are known before the job starts
    <spool>/recording-end                  time at which the recording of the processes ends
    <spool>/element-bytes                  bytes of the recorded elements of tensors
    <spool>/refusals                       errors for which processes have no directory
    <spool>/census                         page: requests for censuses of memory
    <spool>/programs                       one byte per process whose stacks came first
    <spool>/failures                       uncaught exceptions that ended processes
    <spool>/p-<pid>-<start ticks>-<n>/     one per process image (exec makes a new one)
        journal.jsonl                      process description, interned names, facts, notes
        crash                              Python stacks at a fatal signal
        output                             ring of what the program wrote to sys.stderr last
        <tid><class>-<k>.log               k-th segment of one thread's log
        <tid>r-<k>.rows                    k-th file of a log of rows: statistics of tensors
        drops                              number of records that had no room, by cause
        pulse                              heartbeat: a page shared by the process and the monitor
        collectives                        page: progress of the collectives of the process
        collectives-<n>.dump               content of the framework's recorder of collectives
        question, answer.json              request of the monitor for all stacks, and the answer
        plan-<n>.json                      window, of the monitor or of the schedule
        window-<n>_<pid>.json              trace that the framework's profiler captured in it;
                                           .xplane.pb of JAX
        memory-<n>.pickle                  snapshot of device memory where an allocation failed

Every record is written in place in a mapped file, so it survives any end of the process.
"""

from __future__ import annotations

from stepscope.spool._hot import (
    AnnotationBase as AnnotationBase,
    LogsBase as LogsBase,
    OptimizerBase as OptimizerBase,
    ProbeBase as ProbeBase,
    StepsBase as StepsBase,
    native as native,
    set_generation as set_generation,
)
from stepscope.spool.collective_dump import (
    DumpReason as DumpReason,
    Journal as Journal,
    parse_dump_name as parse_dump_name,
    read_dump as read_dump,
    read_journal as read_journal,
    write_dump as write_dump,
)
from stepscope.spool.error_output import (
    NO_OUTPUT_VARIABLE as NO_OUTPUT_VARIABLE,
    OUTPUT_FILE as OUTPUT_FILE,
    OutputRing as OutputRing,
    read_output as read_output,
)
from stepscope.spool.failures import (
    CRASH_FILE as CRASH_FILE,
    is_relayed as is_relayed,
    note_failure as note_failure,
    note_survival as note_survival,
    read_failures as read_failures,
)
from stepscope.spool.log import ROLL_WORD as ROLL_WORD, SpanLog as SpanLog
from stepscope.spool.page import (
    ANSWER_WORD as ANSWER_WORD,
    BOUNDARY_WORD as BOUNDARY_WORD,
    CENSUS_PID_WORDS as CENSUS_PID_WORDS,
    CENSUS_WORD as CENSUS_WORD,
    DATA_WAIT_WORD as DATA_WAIT_WORD,
    DROPS_FILE as DROPS_FILE,
    ENDED_WORD as ENDED_WORD,
    FINISHED_STEPS_WORD as FINISHED_STEPS_WORD,
    ISSUED_WORD as ISSUED_WORD,
    PAGE_BYTES as PAGE_BYTES,
    QUESTION_WORD as QUESTION_WORD,
    STARTED_WORD as STARTED_WORD,
    STEPS_WORD as STEPS_WORD,
    TRANSFERS_WORD as TRANSFERS_WORD,
    UNKNOWN_CAUSE as UNKNOWN_CAUSE,
    CollectivePage as CollectivePage,
    DropCounts as DropCounts,
    Heartbeat as Heartbeat,
    WindowState as WindowState,
    note_refusal as note_refusal,
    note_refusal_in_spool as note_refusal_in_spool,
    open_censuses as open_censuses,
    parse_drops as parse_drops,
    read_refusal as read_refusal,
    read_refusals as read_refusals,
    request_census as request_census,
    reserve_censuses as reserve_censuses,
    reserve_refusals as reserve_refusals,
)
from stepscope.spool.plan import (
    MEMORY_HISTORY_VARIABLE as MEMORY_HISTORY_VARIABLE,
    OPTIONS as OPTIONS,
    SNAPSHOTS as SNAPSHOTS,
    Depth as Depth,
    Recorder as Recorder,
    ScheduledWindows as ScheduledWindows,
    StepSchedule as StepSchedule,
    WindowPlan as WindowPlan,
    find_overlap as find_overlap,
    finished_file as finished_file,
    limit_duration as limit_duration,
    next_window as next_window,
    parse_step_schedule as parse_step_schedule,
    read_schedules as read_schedules,
    snapshot_file as snapshot_file,
    window_file as window_file,
    write_schedules as write_schedules,
)
from stepscope.spool.record import (
    CALLBACK_PREFIX as CALLBACK_PREFIX,
    FIRST_SEQUENCE_WORD as FIRST_SEQUENCE_WORD,
    HEADER_WORDS as HEADER_WORDS,
    MAGIC as MAGIC,
    RECORD_WORDS as RECORD_WORDS,
    SEGMENT_BYTES as SEGMENT_BYTES,
    SEGMENT_RECORDS as SEGMENT_RECORDS,
    UNFILTERED_LOSS as UNFILTERED_LOSS,
    Flag as Flag,
    Kind as Kind,
    make_meta as make_meta,
    pack_forward as pack_forward,
)
from stepscope.spool.row_log import (
    POWER_BINS as POWER_BINS,
    TENSOR_ELEMENTS as TENSOR_ELEMENTS,
    TENSOR_VALUES as TENSOR_VALUES,
    RowLog as RowLog,
    read_rows as read_rows,
)
from stepscope.spool.stack_question import (
    ask_for_stacks as ask_for_stacks,
    read_answer as read_answer,
    read_question as read_question,
    write_answer as write_answer,
)
from stepscope.spool.tensor_plan import (
    AFTER_LOSS as AFTER_LOSS,
    COLLECTIONS as COLLECTIONS,
    DEFAULT_RAW_LIMIT_BYTES as DEFAULT_RAW_LIMIT_BYTES,
    DEFAULT_TENSOR_INTERVAL as DEFAULT_TENSOR_INTERVAL,
    FROM_START as FROM_START,
    NAN_SEARCH_VARIABLE as NAN_SEARCH_VARIABLE,
    TENSORS_VARIABLE as TENSORS_VARIABLE,
    ElementBudget as ElementBudget,
    TensorPlan as TensorPlan,
)
from stepscope.spool.tree import (
    ENTRY as ENTRY,
    MIN_LIMIT_BYTES as MIN_LIMIT_BYTES,
    PROGRAM as PROGRAM,
    ROWS as ROWS,
    SHARED_MEMORY_FACTOR as SHARED_MEMORY_FACTOR,
    SPOOL_VARIABLE as SPOOL_VARIABLE,
    START as START,
    LogName as LogName,
    SpoolFullError as SpoolFullError,
    SpoolTree as SpoolTree,
    find_launch_ns as find_launch_ns,
    is_monitor as is_monitor,
    is_suspended as is_suspended,
    machine_id as machine_id,
    process_directory as process_directory,
    process_is_alive as process_is_alive,
    process_parent as process_parent,
    process_start_ticks as process_start_ticks,
    read_process_fields as read_process_fields,
    read_recording_end as read_recording_end,
    remove_process_directory as remove_process_directory,
    segment_bytes as segment_bytes,
    write_recording_end as write_recording_end,
)
