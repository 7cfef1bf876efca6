from .job.dashboard import (
    ActiveShare as ActiveShare,
    Breakdown as Breakdown,
    Dashboard as Dashboard,
    KernelTime as KernelTime,
)
from .job.insights import InsightsView as InsightsView, RuleInsight as RuleInsight
from .job.job_time import (
    JobClass as JobClass,
    JobFunction as JobFunction,
    JobRank as JobRank,
    JobRestart as JobRestart,
    JobTimeView as JobTimeView,
)
from .job.jobs import (
    JobRow as JobRow,
    Jobs as Jobs,
    JobSummary as JobSummary,
    TraceRow as TraceRow,
    describe_saving as describe_saving,
    describe_verdict as describe_verdict,
    make_job_row as make_job_row,
    make_trace_row as make_trace_row,
    make_unopened_row as make_unopened_row,
    read_stored_job as read_stored_job,
    summarize_job as summarize_job,
)
from .job.overview import (
    ChangedSetting as ChangedSetting,
    ConfigurationView as ConfigurationView,
    Overview as Overview,
    RecordedWindow as RecordedWindow,
    Recording as Recording,
    show_overview as show_overview,
)
from .options import (
    DEFAULTS as DEFAULTS,
    OPTION_FLAGS as OPTION_FLAGS,
    Ranged as Ranged,
    TimeRange as TimeRange,
    View as View,
    ViewOptions as ViewOptions,
    parse_option as parse_option,
)
from .profiling_report.usage import UsageView as UsageView
from .registry import VIEWS as VIEWS
from .steps.arrivals import (
    Arrivals as Arrivals,
    DistributedView as DistributedView,
    RankTime as RankTime,
    RankWindow as RankWindow,
    StepMatrix as StepMatrix,
)
from .steps.critical_path import (
    FIX_SEPARATOR as FIX_SEPARATOR,
    SIMULATED_FIXES as SIMULATED_FIXES,
    CriticalPathOf as CriticalPathOf,
    CriticalPathView as CriticalPathView,
    SimulatedFixRow as SimulatedFixRow,
    WhatIfOf as WhatIfOf,
    WhatIfView as WhatIfView,
)
from .steps.input_pipeline import (
    InputPipelineView as InputPipelineView,
    MakingView as MakingView,
    RankPipeline as RankPipeline,
)
from .steps.ranks import (
    LateEpisode as LateEpisode,
    LatenessMap as LatenessMap,
    NodeRow as NodeRow,
    NodesView as NodesView,
    RankLateness as RankLateness,
    RanksView as RanksView,
)
from .steps.steps import RankStepsView as RankStepsView, StepsView as StepsView
from .system import (
    NodeView as NodeView,
    SystemHeatView as SystemHeatView,
    SystemSeriesView as SystemSeriesView,
    SystemView as SystemView,
)
from .tensors.boosted_data import (
    ConfusionMatrix as ConfusionMatrix,
    DataSetEvaluation as DataSetEvaluation,
    FeatureImportance as FeatureImportance,
    LabelDistribution as LabelDistribution,
    RegressionErrors as RegressionErrors,
)
from .tensors.boosting import XgboostView as XgboostView
from .tensors.tensor import TensorHeatView as TensorHeatView, TensorView as TensorView
from .tensors.tensors import RecordedTensor as RecordedTensor, TensorsView as TensorsView
from .trace_data import (
    QualityNote as QualityNote,
    explain_no_traces as explain_no_traces,
    select_traces as select_traces,
)
