from .build_verdict import diagnose as diagnose
from .causes.late_ranks import (
    LateReport as LateReport,
    Persistence as Persistence,
    classify_persistence as classify_persistence,
    report_late_ranks as report_late_ranks,
)
from .death import find_death as find_death
from .death_causes import Death as Death
from .hang import ProcessStates as ProcessStates, describe_processes as describe_processes
from .host_memory import (
    MemoryAccount as MemoryAccount,
    account_for_memory as account_for_memory,
    describe_holder as describe_holder,
    describe_node_memory as describe_node_memory,
)
from .job import account_for_job as account_for_job
from .job_account import (
    JobAccount as JobAccount,
    JobFix as JobFix,
    JobPart as JobPart,
    PartFunction as PartFunction,
)
from .job_stage import JobStage as JobStage, list_stage_lines as list_stage_lines
from .job_stages import explain_mixed_stages as explain_mixed_stages
from .measured import (
    MAX_DATA_RATIO as MAX_DATA_RATIO,
    MIN_GPU_RATIO as MIN_GPU_RATIO,
    TARGET_RULES as TARGET_RULES,
    TRIES as TRIES,
    describe_outcome as describe_outcome,
    describe_prediction as describe_prediction,
    read_tried_changes as read_tried_changes,
)
from .rank_lines import RankLine as RankLine, list_rank_lines as list_rank_lines
from .shares.shares import compute_evaluation_ratio as compute_evaluation_ratio
from .stuck import (
    explain_stuck as explain_stuck,
    find_stuck as find_stuck,
    read_stuck_nodes as read_stuck_nodes,
)
from .stuck_account import (
    StuckAccount as StuckAccount,
    StuckProcess as StuckProcess,
    find_user_frame as find_user_frame,
)
from .traces.trace_shares import report_late_traces as report_late_traces
from .verdict import (
    LEARNING_TITLE as LEARNING_TITLE,
    LOOP_SHARE as LOOP_SHARE,
    MIN_SAVING_RATIO as MIN_SAVING_RATIO,
    STEP_SHARE as STEP_SHARE,
    SUSPECT_NAMES as SUSPECT_NAMES,
    SUSPECTS as SUSPECTS,
    ContributingCause as ContributingCause,
    Evidence as Evidence,
    Fix as Fix,
    Learning as Learning,
    Prediction as Prediction,
    RuledOut as RuledOut,
    Stage as Stage,
    Suspect as Suspect,
    Target as Target,
    TargetName as TargetName,
    Verdict as Verdict,
    name_cause as name_cause,
    render_dim as render_dim,
)
