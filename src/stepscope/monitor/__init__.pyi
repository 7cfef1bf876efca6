from .__main__ import import_monitor as import_monitor, run_monitor as run_monitor
from .attached.target import (
    Target as Target,
    check_target as check_target,
    examine_target as examine_target,
    explain_ptrace as explain_ptrace,
    find_py_spy as find_py_spy,
    may_read_memory as may_read_memory,
)
from .config import (
    DEFAULT_FLUSH_S as DEFAULT_FLUSH_S,
    DEFAULT_INTERVAL_MS as DEFAULT_INTERVAL_MS,
    DEFAULT_SPOOL_LIMIT_BYTES as DEFAULT_SPOOL_LIMIT_BYTES,
    DEFAULT_STUCK_AFTER_S as DEFAULT_STUCK_AFTER_S,
    FIRST_FLUSH_S as FIRST_FLUSH_S,
    KINETO_LINK as KINETO_LINK,
    MIN_RUN_BYTES as MIN_RUN_BYTES,
    SHIMS_LINK as SHIMS_LINK,
    SHIMS_PREFIX as SHIMS_PREFIX,
    AttachSettings as AttachSettings,
    ErrorOutput as ErrorOutput,
    Handshake as Handshake,
    JobExit as JobExit,
    MonitorConfig as MonitorConfig,
    StopSignal as StopSignal,
    WindowSettings as WindowSettings,
    child_variables as child_variables,
    last_line as last_line,
    open_error_output as open_error_output,
    open_log as open_log,
    remove_spool as remove_spool,
    start_beside as start_beside,
    start_monitor as start_monitor,
)
from .host import (
    node_info as node_info,
    node_name as node_name,
    read_instance_type as read_instance_type,
)
from .recover import Recovery as Recovery, recover_run as recover_run
from .registration import (
    Participant as Participant,
    Registration as Registration,
    check_join as check_join,
    read_participants as read_participants,
    register_launcher as register_launcher,
)
from .snapshot import Snapshot as Snapshot, take_snapshot as take_snapshot
from .unrecorded import (
    VALUED_OPTIONS as VALUED_OPTIONS,
    HookFacts as HookFacts,
    explain_hook as explain_hook,
)
from .uploading import (
    BUSY as BUSY,
    UploadEnd as UploadEnd,
    Uploader as Uploader,
    discard_staging as discard_staging,
)
