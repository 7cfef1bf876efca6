from .base import (
    BoxPlot as BoxPlot,
    HistogramCounts as HistogramCounts,
    IncrementalRule as IncrementalRule,
    NotApplicable as NotApplicable,
    Rule as Rule,
    Trigger as Trigger,
    read_details as read_details,
)
from .evaluate import Evaluation as Evaluation
from .inputs import (
    Batches as Batches,
    ModeTimes as ModeTimes,
    RankStepTimes as RankStepTimes,
    RuleInputs as RuleInputs,
    RuleTrace as RuleTrace,
    StepTimes as StepTimes,
    TracedBatches as TracedBatches,
    TracedGpu as TracedGpu,
    TracedSteps as TracedSteps,
)
from .parameters import (
    MAX_HANDOVER_NS as MAX_HANDOVER_NS,
    describe_parameters as describe_parameters,
    percent_beside as percent_beside,
)
from .profiler import RULE_METRICS as RULE_METRICS
from .profiler.batch_size import (
    BatchSizeDetails as BatchSizeDetails,
    BatchSizeParameters as BatchSizeParameters,
)
from .profiler.bottleneck import (
    BottleneckDetails as BottleneckDetails,
    NodeBottlenecks as NodeBottlenecks,
)
from .profiler.dataloader import (
    KEEP_WORKERS as KEEP_WORKERS,
    DataloaderDetails as DataloaderDetails,
    LoaderUsage as LoaderUsage,
)
from .profiler.gpu_memory import GPUMemoryIncreaseDetails as GPUMemoryIncreaseDetails
from .profiler.gpu_utilization import (
    LoadBalancingDetails as LoadBalancingDetails,
    LowGPUUtilizationDetails as LowGPUUtilizationDetails,
)
from .profiler.host_memory import (
    describe_forecast as describe_forecast,
    describe_growth as describe_growth,
    describe_limit as describe_limit,
)
from .profiler.overall import (
    TRAINING_PHASES as TRAINING_PHASES,
    NodeUsage as NodeUsage,
    OperatorTime as OperatorTime,
    OverallFrameworkMetricsDetails as OverallFrameworkMetricsDetails,
    OverallSystemUsageDetails as OverallSystemUsageDetails,
    UsageQuantiles as UsageQuantiles,
)
from .profiler.rank_straggler import (
    UNSENT_METRIC as UNSENT_METRIC,
    describe_slow_link as describe_slow_link,
)
from .profiler.step_outlier import (
    RankDurations as RankDurations,
    StepOutlierDetails as StepOutlierDetails,
)
from .registry import (
    Registry as Registry,
    installed_rules as installed_rules,
    load_rule_file as load_rule_file,
    make_rules as make_rules,
    page as page,
    read_assignments as read_assignments,
    read_configuration as read_configuration,
    summary as summary,
)
from .templates import shares_of_total as shares_of_total
from .tensor.nan_origin import (
    describe_origin as describe_origin,
    find_first_origin as find_first_origin,
)
from .tensor.poor_weight_initialization import (
    NamedTensor as NamedTensor,
    name_tensors as name_tensors,
)
