from .before_after import BeforeAfter as BeforeAfter
from .compare import compare_runs as compare_runs, describe_last_run as describe_last_run
from .conditions import (
    FigureChange as FigureChange,
    TargetOutcome as TargetOutcome,
    parse_condition as parse_condition,
)
from .contributions import (
    Contribution as Contribution,
    Contributions as Contributions,
    PartContributions as PartContributions,
)
from .gate import Gate as Gate, parse_allowed_groups as parse_allowed_groups
from .last_run import find_last_run as find_last_run
from .names import (
    NameChange as NameChange,
    NameChanges as NameChanges,
    SettingChange as SettingChange,
)
from .payload import (
    ComparedRun as ComparedRun,
    Comparison as Comparison,
    StepChanges as StepChanges,
)
from .step_changes import StepChange as StepChange
from .summary import (
    RunSummary as RunSummary,
    compare_summaries as compare_summaries,
    describe_metric as describe_metric,
    get_summary as get_summary,
    is_summary as is_summary,
    read_stored_summary as read_stored_summary,
    read_summary as read_summary,
    summarise_run as summarise_run,
)
from .workload_contract import (
    ContractDifference as ContractDifference,
    ContractTerms as ContractTerms,
)
