from .boosted_data import (
    ConfusionMatrix as ConfusionMatrix,
    DataSetEvaluation as DataSetEvaluation,
    FeatureImportance as FeatureImportance,
    LabelDistribution as LabelDistribution,
    RegressionErrors as RegressionErrors,
)
from .boosting import XgboostView as XgboostView
from .configuration import (
    ChangedSetting as ChangedSetting,
    ConfigurationView as ConfigurationView,
)
from .dashboard import (
    ActiveShare as ActiveShare,
    Breakdown as Breakdown,
    Dashboard as Dashboard,
    KernelTime as KernelTime,
)
from .distributed_payload import (
    Arrivals as Arrivals,
    DistributedView as DistributedView,
    RankTime as RankTime,
    RankWindow as RankWindow,
    StepMatrix as StepMatrix,
)
from .input_pipeline import (
    InputPipelineView as InputPipelineView,
    MakingView as MakingView,
    RankPipeline as RankPipeline,
)
from .insights_payload import InsightsView as InsightsView, RuleInsight as RuleInsight
from .jobs import (
    JobRow as JobRow,
    Jobs as Jobs,
    JobSummary as JobSummary,
    list_jobs as list_jobs,
    make_job_row as make_job_row,
    make_trace_row as make_trace_row,
    make_unopened_row as make_unopened_row,
    summarize_job as summarize_job,
)
from .nodes import NodeRow as NodeRow, NodesView as NodesView
from .options import (
    DEFAULTS as DEFAULTS,
    OPTION_FLAGS as OPTION_FLAGS,
    View as View,
    ViewOptions as ViewOptions,
    parse_option as parse_option,
)
from .overview import (
    Overview as Overview,
    RecordedWindow as RecordedWindow,
    Recording as Recording,
    show_overview as show_overview,
)
from .quality import QualityNote as QualityNote
from .ranges import Ranged as Ranged, TimeRange as TimeRange
from .ranks import (
    LateEpisode as LateEpisode,
    LatenessMap as LatenessMap,
    RankLateness as RankLateness,
    RanksView as RanksView,
)
from .registry import VIEWS as VIEWS
from .steps import RankStepsView as RankStepsView, StepsView as StepsView
from .system import NodeView as NodeView, SystemView as SystemView
from .system_heat import SystemHeatView as SystemHeatView
from .system_series import SystemSeriesView as SystemSeriesView
from .tensor import TensorView as TensorView
from .tensor_heat import TensorHeatView as TensorHeatView
from .tensors import (
    RecordedTensor as RecordedTensor,
    TensorsView as TensorsView,
)
from .times import utc_time as utc_time
from .trace_choice import explain_no_traces as explain_no_traces, select_traces as select_traces
from .usage import UsageView as UsageView
