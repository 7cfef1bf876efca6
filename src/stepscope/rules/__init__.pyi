from .base import (
    IncrementalRule as IncrementalRule,
    NotApplicable as NotApplicable,
    Rule as Rule,
)
from .details import (
    BoxPlot as BoxPlot,
    HistogramCounts as HistogramCounts,
    read_details as read_details,
)
from .evaluate import Evaluation as Evaluation
from .inputs import (
    Batches as Batches,
    RankStepTimes as RankStepTimes,
    RuleInputs as RuleInputs,
)
from .pages import (
    page as page,
    summary as summary,
)
from .parameters import describe_parameters as describe_parameters
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
    DataloaderDetails as DataloaderDetails,
    LoaderUsage as LoaderUsage,
)
from .profiler.gpu_memory_increase import GPUMemoryIncreaseDetails as GPUMemoryIncreaseDetails
from .profiler.link_evidence import (
    UNSENT_METRIC as UNSENT_METRIC,
    describe_slow_link as describe_slow_link,
)
from .profiler.load_balancing import LoadBalancingDetails as LoadBalancingDetails
from .profiler.low_gpu_utilization import LowGPUUtilizationDetails as LowGPUUtilizationDetails
from .profiler.overall_framework_metrics import (
    TRAINING_PHASES as TRAINING_PHASES,
    OperatorTime as OperatorTime,
    OverallFrameworkMetricsDetails as OverallFrameworkMetricsDetails,
)
from .profiler.overall_system_usage import (
    NodeUsage as NodeUsage,
    OverallSystemUsageDetails as OverallSystemUsageDetails,
    UsageQuantiles as UsageQuantiles,
)
from .profiler.step_outlier import (
    RankDurations as RankDurations,
    StepOutlierDetails as StepOutlierDetails,
)
from .registry import (
    Registry as Registry,
    installed_rules as installed_rules,
    load_rule_file as load_rule_file,
)
from .settings import (
    make_rules as make_rules,
    read_assignments as read_assignments,
    read_configuration as read_configuration,
)
from .step_phases import shares_of_total as shares_of_total
from .tensor.loss_not_decreasing import DecreasingLoss as DecreasingLoss
from .tensor.named_tensors import (
    NamedTensor as NamedTensor,
    name_tensors as name_tensors,
)
from .tensor.nan_origin import (
    describe_origin as describe_origin,
    find_first_origin as find_first_origin,
)
from .threshold_text import percent_beside as percent_beside
from .traces import (
    RuleTrace as RuleTrace,
    StepTimes as StepTimes,
    TracedBatches as TracedBatches,
    TracedGpu as TracedGpu,
    TracedSteps as TracedSteps,
)
from .trigger import Trigger as Trigger
