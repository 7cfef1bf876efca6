from .before_after import BeforeAfter as BeforeAfter
from .compare import compare_runs as compare_runs
from .conditions import parse_condition as parse_condition
from .configuration import SettingChange as SettingChange
from .contributions import (
    Contribution as Contribution,
    Contributions as Contributions,
    PartContributions as PartContributions,
)
from .gate import (
    Gate as Gate,
    parse_allowed_groups as parse_allowed_groups,
)
from .job_figures import FigureChange as FigureChange
from .names import NameChange as NameChange, NameChanges as NameChanges
from .payload import (
    ComparedRun as ComparedRun,
    Comparison as Comparison,
    StepChanges as StepChanges,
)
from .step_changes import StepChange as StepChange
from .targets import TargetOutcome as TargetOutcome
from .workload_contract import (
    ContractDifference as ContractDifference,
    ContractTerms as ContractTerms,
)
