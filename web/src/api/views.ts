// Made by web/api_types.py from the payloads of stepscope: do not edit.

import type { RuleStatus, Verdict } from "./report";

/** Share of the time in which devices or nodes were active; the rest was idle. */
export interface ActiveShare {
  active_ratio: number;
  share_of: string;
}

/** Payload of `activity`. */
export interface ActivitiesView {
  range: TimeRange | null;
  share_of: string;
  carry_over: "drop" | "keep";
  traces: TraceActivity[];
  missing: string | null;
  quality: QualityNote[];
}

/** One kind of activity. */
export interface ActivityView {
  kind: string;
  count: number;
  total_ns: number;
  share_ratio: number;
  mean_ns: number | null;
}

/** Annotations with one name, on the host or on devices. */
export interface AnnotationGroup {
  name: string;
  on_device: boolean;
  count: number;
  total_ns: number;
  mean_ns: number;
  p50_ns: number;
  p95_ns: number;
  max_ns: number;
}

/** Durations of the ranges with the requested name. */
export interface AnnotationHistogram {
  on_device: boolean;
  total_ns: number;
  duration_ns: Statistics | null;
  bucket_ns: number;
  buckets: Bucket[];
}

/** Annotations of one trace, or of one process of the job. */
export interface Annotations {
  rank: number | null;
  trace: string | null;
  process: string | null;
  row_count: number;
  annotations: AnnotationGroup[];
  histograms: AnnotationHistogram[];
  missing: string | null;
  quality: QualityNote[];
}

/** Payload of `annotations`. */
export interface AnnotationsView {
  range: TimeRange | null;
  name: string | null;
  sources: Annotations[];
  missing: string | null;
  quality: QualityNote[];
}

/** Table of two runs before and after a change, with the savings. */
export interface BeforeAfter {
  rows: BeforeAfterRow[];
  epoch_count: number | null;
  saved_hours: number | null;
  saved_usd: number | null;
  saving_ratio: number | null;
  speed_up: number | null;
  speed_up_by: "epoch" | "step" | null;
  before_price: PriceUsed | null;
  after_price: PriceUsed | null;
  notes: string[];
}

/** A figure of both runs; null where a run does not have it. */
export interface BeforeAfterRow {
  name: string;
  unit: "hours" | "ns" | "ratio" | "usd";
  before: number | null;
  after: number | null;
  text: string;
  change_ratio: number | null;
  change_text: string | null;
}

/** Allocation with its release; times are null for events outside the trace. */
export interface BlockView {
  operator: string | null;
  size_bytes: number;
  allocated_after_ns: number | null;
  released_after_ns: number | null;
  lifetime_ns: number | null;
}

/** Parts that sum to the total. */
export interface Breakdown {
  share_of: string;
  parts: TimeShare[];
}

/** Ranges that took at least `from_ns` and less than the next bucket's. */
export interface Bucket {
  from_ns: number;
  count: number;
}

/** Launches by one runtime function, or by all of them. */
export interface CallLaunches {
  call: string;
  launch_count: number;
  work_count: number;
  call_mean_ns: number;
  call_p95_ns: number;
  device_mean_ns: number;
  delay_p50_ns: number;
  delay_p95_ns: number;
  delay_max_ns: number;
  short_count: number;
  long_call_count: number;
  long_delay_count: number;
}

/** One category over all steps; null where the trace cannot contain it. */
export interface CategoryShare {
  category: string;
  mean_ns: number | null;
  share_ratio: number | null;
}

/** Collectives of one name within one group of ranks. */
export interface Collective {
  name: string;
  rank: number | null;
  group: string | null;
  group_description: string | null;
  group_size: number | null;
  dtype: string | null;
  call_count: number;
  total_ns: number;
  mean_ns: number;
  share_ratio: number | null;
  matched_count: number;
  transfer_ns: number | null;
  waiting_ns: number | null;
  moved_bytes: number | null;
  mean_bytes: number | null;
  algorithm_bytes_per_s: number | null;
  bus_bytes_per_s: number | null;
}

/** The run that represents one of the two programs. */
export interface ComparedRun {
  run_id: string;
  of_runs: number;
  command: string;
  suspect: "communication" | "data_pipeline" | "framework_overhead" | "healthy" | "insufficient_evidence" | "model";
  cause: string;
  share_ratio: number;
  share_of: string;
  confidence_ratio: number;
  headline: string;
  step_count: number;
  step_ns: Statistics | null;
}

/** Comparison of two programs. */
export interface Comparison {
  headline: string;
  base: ComparedRun;
  other: ComparedRun;
  steps: StepChanges | null;
  steps_missing: string | null;
  contributions: Contributions | null;
  contract: ContractTerms[];
  gate: Gate | null;
  figures: FigureChange[];
  figures_of: string;
  before_after: BeforeAfter;
  settings: SettingChange[];
  same_setting_count: number;
  kernels: NameChanges | null;
  operators: NameChanges | null;
  names_missing: string | null;
  notes: string[];
}

/** Result of one condition of `--fail-if`. */
export interface ConditionResult {
  condition: string;
  outcome: "failed" | "passed" | "unknown";
  said: string;
}

/** A property that is not the same; null where a run did not record it. */
export interface ContractDifference {
  name: string;
  base: string | null;
  other: string | null;
  standing: "different" | "same" | "unknown";
}

/** One group of the contract between two runs. */
export interface ContractTerms {
  group: "batch" | "hardware" | "model" | "precision" | "software";
  standing: "different" | "same" | "unknown";
  base_digest: string | null;
  other_digest: string | null;
  same_count: number;
  differences: ContractDifference[];
}

/** Contribution of one row to the change of its part. */
export interface Contribution {
  name: string;
  path: string[];
  kind: "device work" | "host call" | "host cause" | "input stage" | "remainder";
  status: "added" | "faster" | "less_overlapped" | "more_overlapped" | "removed" | "reordered" | "slower" | "unchanged";
  base_ns: number;
  other_ns: number;
  change_ns: number;
  base_busy_ns: number | null;
  other_busy_ns: number | null;
  base_calls: number | null;
  other_calls: number | null;
}

/** The change of the mean step; the changes of `parts` sum to `change_ns`. */
export interface Contributions {
  base_ns: number;
  other_ns: number;
  change_ns: number;
  parts: PartContributions[];
  missing: string | null;
}

/** Copies between the same two kinds of memory, or sets. */
export interface CopyKindView {
  direction: string;
  source: string | null;
  target: string | null;
  count: number;
  total_ns: number;
  moved_bytes: number | null;
  achieved_bytes_per_s: number | null;
}

/** A counter within a window: mean, minimum and maximum of each time bin. */
export interface CounterSeries {
  track: string;
  unit: string;
  full: number;
  after_ns: number[];
  mean: (number | null)[];
  least: (number | null)[];
  largest: (number | null)[];
}

/** `timeline-counters`. */
export interface CountersView {
  from_after_ns: number;
  to_after_ns: number;
  piece_ns: number;
  series: CounterSeries[];
}

/** Payload of `dashboard`. */
export interface Dashboard {
  range: TimeRange | null;
  gpu_active: ActiveShare | null;
  cpu_active: ActiveShare | null;
  utilisation: UtilisationOverTime | null;
  step_durations: StepDurations | null;
  kernel_count: number;
  launch_count: number;
  kernels_by_time: KernelTime[];
  kernels_by_launches: KernelTime[];
  precision: Breakdown | null;
  activity: Breakdown | null;
  memory_operations: Breakdown | null;
  missing_parts: Record<string, string>;
  quality: QualityNote[];
}

/** Delivery of a notification; there is one per action and rule. */
export interface Delivery {
  action: string;
  number: number;
  target: string;
  rule: string;
  state: DeliveryState;
  try_count: number;
  last_ns: number | null;
  error: string | null;
}

/** State of a notification on its way to one receiver. */
export type DeliveryState = "failed" | "pending" | "sent";

/** One device, from its first work to its last; fields as in `TraceGpuTime`. */
export interface DeviceGpuTime {
  device: number;
  total_ns: number;
  busy_ns: number;
  idle_ns: number;
  compute_ns: number;
  memset_ns: number;
  comm_ns: number;
  exposed_comm_ns: number;
  exposed_memcpy_ns: number;
  same_stream_overlap_count: number;
  gpu_event_count: number;
  shares: GpuShares | null;
}

/** Memory of one device. */
export interface DeviceMemoryView {
  device: string;
  event_count: number;
  absolute: boolean;
  start_bytes: number;
  peak_bytes: number;
  peak_after_ns: number;
  end_bytes: number;
  peak_reserved_bytes: number | null;
  curve_after_ns: number[];
  allocated_curve_bytes: number[];
  reserved_curve_bytes: number[] | null;
  peak: MemoryPeakView | null;
  operator_count: number;
  outside_count: number;
  outside_size_increase_bytes: number;
  operators: OperatorMemory[];
  block_count: number;
  blocks: BlockView[];
  notes: string[];
}

/** One device; null where the profiler recorded no data. */
export interface DeviceMetrics {
  device: number;
  device_name: string | null;
  memory_bytes: number | null;
  compute_capability: string | null;
  multiprocessor_count: number | null;
  kernel_count: number;
  utilization_ratio: number | null;
  est_sm_efficiency_ratio: number | null;
  est_achieved_occupancy_ratio: number | null;
  tensor_core_ratio: number | null;
  utilization_curve_ratio: number[];
  est_sm_efficiency_curve_ratio: number[] | null;
}

/** Device and its peak rates, without sparsity. */
export interface DeviceView {
  device_name: string;
  peaks_of: string | null;
  source: string | null;
  estimate: boolean;
  memory_bytes_per_s: number | null;
  peaks: PeakRateView[];
}

/** Payload of `distributed`. */
export interface DistributedView {
  range: TimeRange | null;
  share_of: string;
  transfer_of: string;
  bandwidth_of: string;
  carry_over: "drop" | "keep";
  windows: RankWindow[];
  matrix: StepMatrix | null;
  missing: string | null;
  quality: QualityNote[];
}

/** Time of each step, by column; steps extend until their device work is done. */
export interface DividedSteps {
  step: string[];
  total_ns: number[];
  computation_ns: number[];
  overlap_ns: number[];
  communication_ns: number[];
  other_ns: number[];
  transfer_ns: number[] | null;
  waiting_ns: number[] | null;
}

/** One chart of a finding. */
export interface EvidenceChart {
  title: string;
  unit: string;
  from_after_ns: number;
  to_after_ns: number;
  series: EvidenceSeries[];
  left_out_count: number;
}

/** Measurements around the time of a finding, averaged in bins of time. */
export interface EvidenceSeries {
  name: string;
  node: string;
  device: string;
  after_ns: number[];
  value: (number | null)[];
}

/** Groups of one family of operators. */
export interface FamilyTotals {
  family: string;
  device_ns: number;
  time_ratio: number;
  total_flop: number | null;
  total_bytes: number | null;
  roofline_ratio: number | null;
}

/** Change of a figure of the whole job; null where a run does not have it. */
export interface FigureChange {
  name: string;
  unit: string;
  base: number | null;
  other: number | null;
  change_ratio: number | null;
}

/** First and last time at which a rule fired. */
export interface FindingMark {
  rule: string;
  sentence: string;
  first_after_ns: number;
  last_after_ns: number;
}

/** Calls on one path of names. */
export interface FlameNode {
  name: string;
  count: number;
  total_ns: number;
  self_ns: number;
  children: FlameNode[];
}

/** `timeline-flame`: a range of tracks by path of names, largest first. */
export interface FlameView {
  from_after_ns: number;
  to_after_ns: number;
  total_ns: number;
  roots: FlameNode[];
  left_out_ns: number;
}

/** Decision of a comparison with conditions. */
export interface Gate {
  outcome: "failed" | "not comparable" | "passed";
  said: string;
  allowed: string[];
  conditions: ConditionResult[];
}

/** Payload of `gpu-metrics`. */
export interface GpuMetricsView {
  range: TimeRange | null;
  share_of: string;
  traces: TraceMetrics[];
  missing: string | null;
  quality: QualityNote[];
}

/** Shares of `total_ns`; the first four sum to one. */
export interface GpuShares {
  compute_ratio: number;
  exposed_comm_ratio: number;
  exposed_memcpy_ratio: number;
  idle_ratio: number;
  busy_ratio: number;
}

/** Payload of `gpu-time`. */
export interface GpuTimeView {
  range: TimeRange | null;
  share_of: string;
  carry_over: "drop" | "keep";
  traces: TraceGpuTime[];
  missing: string | null;
  quality: QualityNote[];
}

/** One captured graph and its replays; its kernels are also in the table of kernels. */
export interface GraphReplays {
  graph: number;
  replays: number;
  kernel_count: number;
  distinct_kernel_count: number;
  total_ns: number;
  share_ratio: number;
}

/** One metric of one device. */
export interface HeatRow {
  name: string;
  metric: string;
  device: string;
  unit: string;
  full: number;
  shade_ratio: (number | null)[];
}

/** Memory allocated by one operator and held at the peak. */
export interface HolderView {
  operator: string | null;
  block_count: number;
  held_bytes: number;
  held_ratio: number | null;
}

/** One step as marked by the host, and device activity in that time. */
export interface HostStep {
  step: string;
  host_ns: number;
  computation_ns: number;
  communication_ns: number;
  overlap_ns: number;
  neither_ns: number;
}

/** Payload of `idle`. */
export interface IdleView {
  range: TimeRange | null;
  share_of: string;
  kernel_wait_below_ns: number;
  carry_over: "drop" | "keep";
  traces: TraceIdle[];
  missing: string | null;
  quality: QualityNote[];
}

/** Payload of `input-pipeline`. */
export interface InputPipelineView {
  range: TimeRange | null;
  share_of: string;
  ranks: RankPipeline[];
  missing: string | null;
}

/** Payload of `insights`. */
export interface InsightsView {
  range: TimeRange | null;
  source: "evaluated now" | "recorded";
  progress: "ended" | "running" | "stopped";
  until_after_ns: number | null;
  scan_ns: number;
  fired: string[];
  fired_count: number;
  rules: RuleInsight[];
  deliveries: Delivery[];
  notes: string[];
  missing: string | null;
}

/** One run. */
export interface JobRow {
  id: string;
  name: string;
  status: "Completed" | "Failed" | "Imported" | "InProgress" | "Stopped" | "Stopping";
  monitor_lost: boolean;
  reason: string | null;
  created_ms: number;
  duration_ns: number | null;
  rank_count: number | null;
  gpu_count: number | null;
  gpu_names: string[];
  node_count: number | null;
  verdict: JobVerdict | null;
  cost_usd: number | null;
  price_said: string | null;
  why_no_cost: string | null;
  command: string;
  working_directory: string;
  size_bytes: number | null;
  problem: string | null;
}

/** State of a job, named as in training services. */
export type JobState = "Completed" | "Failed" | "InProgress" | "Stopped" | "Stopping";

/** Verdict of a job in short. */
export interface JobVerdict {
  suspect: "communication" | "data_pipeline" | "framework_overhead" | "healthy" | "insufficient_evidence" | "model";
  words: string;
  cause: string;
  share_ratio: number;
  share_of: string;
  confidence_ratio: number;
  headline: string;
}

/** Payload of the list of jobs, newest run first. */
export interface Jobs {
  root: string;
  jobs: JobRow[];
  pending_count: number;
  notes: string[];
}

/** Kernels of one name. */
export interface KernelGroup {
  name: string;
  calls: number;
  total_ns: number;
  share_ratio: number;
  mean_ns: number;
  min_ns: number;
  max_ns: number;
  mean_blocks_per_multiprocessor: number | null;
  mean_occupancy_percent: number | null;
  tensor_cores: boolean;
  precision: string | null;
  communication: boolean;
}

/** Kernels of one name with the same launch properties. */
export interface KernelLaunches {
  name: string;
  calls: number;
  total_ns: number;
  share_ratio: number;
  mean_ns: number;
  min_ns: number;
  max_ns: number;
  mean_blocks_per_multiprocessor: number | null;
  mean_occupancy_percent: number | null;
  tensor_cores: boolean;
  precision: string | null;
  communication: boolean;
  operator: string | null;
  grid: [number, number, number] | null;
  block: [number, number, number] | null;
  registers_per_thread: number | null;
  shared_memory_bytes: number | null;
}

/** Kernels of one name in all traces. */
export interface KernelTime {
  name: string;
  launch_count: number;
  total_ns: number;
  share_ratio: number;
  precision: string | null;
  tensor_cores: boolean;
  communication: boolean;
}

/** Payload of `kernels`. */
export interface KernelsView {
  range: TimeRange | null;
  share_of: string;
  by: string;
  carry_over: "drop" | "keep";
  traces: TraceKernels[];
  missing: string | null;
  quality: QualityNote[];
}

/** Payload of `launches`. */
export interface LaunchesView {
  range: TimeRange | null;
  long_call_ns: number;
  long_delay_ns: number;
  blocked_depth: number;
  traces: TraceLaunches[];
  missing: string | null;
  quality: QualityNote[];
}

/** An event linked to the requested one. */
export interface Linked {
  relation: "backward" | "captured by" | "forward" | "launched by" | "launches" | "operator" | "parent";
  track: string;
  event: number;
  name: string;
  after_ns: number;
  duration_ns: number;
  row: number;
}

/** Batch creation. */
export interface MakingView {
  batch_count: number;
  mean_ns: number;
  cpu_ratio: number;
  samples_ratio: number | null;
  collate_ratio: number;
  transforms: Record<string, number>;
  stack_sample_count: number;
  stages: StageView[];
  worker_busy_ratio: number | null;
}

/** An event that matches a search. */
export interface Match {
  track: string;
  event: number;
  name: string;
  after_ns: number;
  duration_ns: number;
  row: number;
}

/** Holders and purposes of the memory at the peak. */
export interface MemoryPeakView {
  share_of: string;
  after_ns: number;
  allocated_bytes: number;
  before_bytes: number | null;
  block_count: number;
  holder_count: number;
  holders: HolderView[];
  purposes: PurposeView[];
  missing: string | null;
}

/** Payload of `memory`. */
export interface MemoryView {
  range: TimeRange | null;
  traces: TraceMemory[];
  missing: string | null;
  quality: QualityNote[];
}

/** One metric of one device by bin of time; null where nothing was sampled. */
export interface MetricSeries {
  metric: string;
  device: string;
  unit: string;
  doc: string;
  mean: (number | null)[];
  least: (number | null)[];
  largest: (number | null)[];
}

/** One metric of one device over the whole run. */
export interface MetricView {
  metric: string;
  device: string;
  unit: string;
  doc: string;
  statistics: Statistics | null;
}

/** One module on one path in the model. */
export interface Module {
  name: string;
  instance: number | null;
  depth: number;
  occurrences: number;
  operator_count: number;
  host_total_ns: number;
  host_self_ns: number;
  device_total_ns: number | null;
  device_self_ns: number | null;
  device_ratio: number | null;
  backward_host_ns: number | null;
  backward_device_ns: number | null;
}

/** Payload of `modules-flame`. */
export interface ModulesFlameView {
  range: TimeRange | null;
  by: "device" | "host";
  time_of: string;
  traces: TraceModulesFlame[];
  missing: string | null;
  quality: QualityNote[];
}

/** Payload of `modules`. */
export interface ModulesView {
  range: TimeRange | null;
  share_of: string;
  traces: TraceModules[];
  missing: string | null;
  quality: QualityNote[];
}

/** Cost of the job: machines x price x time, in US dollars. */
export interface Money {
  usd_per_hour: number;
  price: PriceUsed;
  instance_count: number;
  job_usd: number;
  step_usd: number | null;
  suspect_step_usd: number | null;
  fix_savings_usd: (number | null)[];
}

/** Change of the time of one kernel or operator in the mean step. */
export interface NameChange {
  name: string;
  status: "added" | "faster" | "removed" | "slower" | "unchanged";
  base_ns: number;
  other_ns: number;
  change_ns: number;
  base_calls: number;
  other_calls: number;
}

/** Changes by name; those of the rows and `rest_ns` sum to `change_ns`. */
export interface NameChanges {
  time_of: string;
  base_ns: number;
  other_ns: number;
  change_ns: number;
  rows: NameChange[];
  rest_ns: number;
  rest_count: number;
}

/** Time of the events of one name within a range. */
export interface NameTime {
  name: string;
  count: number;
  total_ns: number;
  self_ns: number;
  mean_ns: number;
  max_ns: number;
}

/** One node: GPUs first, then cores, memory, I/O wait, network. */
export interface NodeHeatMap {
  node: string;
  rows: HeatRow[];
  left_out_count: number;
}

/** One node. */
export interface NodeSeries {
  node: string;
  series: MetricSeries[];
}

/** Status of the job on one node. */
export interface NodeStatus {
  node: string;
  state: JobState;
  reason: string | null;
  exit_code: number | null;
  signal: number | null;
  started_ns: number;
  ended_ns: number | null;
  heartbeat_ns: number;
  monitor_lost: boolean;
  gpu_busy_ratio: number | null;
  cpu_busy_ratio: number | null;
}

/** One node. */
export interface NodeView {
  node: string;
  cpu_model: string;
  cores_total: number;
  cores_available: number;
  memory_bytes: number | null;
  memory_limit_bytes: number | null;
  gpus: string[];
  sample_interval_ns: number;
  sample_count: number;
  missed_sample_count: number;
  metrics: MetricView[];
  metrics_missing: Record<string, string>;
}

/** Calls of one operator; device figures are null in a trace without a device. */
export interface OperatorGroup {
  name: string;
  calls: number;
  device_self_ns: number | null;
  device_self_ratio: number | null;
  device_total_ns: number | null;
  host_self_ns: number;
  host_self_ratio: number;
  host_total_ns: number;
  tensor_core_eligible: boolean | null;
  tensor_core_self_ratio: number | null;
  tensor_core_total_ratio: number | null;
}

/** Memory allocated by the calls of one operator on one device, including operators below them unless `self`. */
export interface OperatorMemory {
  name: string;
  calls: number;
  self_size_increase_bytes: number;
  size_increase_bytes: number;
  self_allocation_count: number;
  allocation_count: number;
  self_allocation_bytes: number;
  allocation_bytes: number;
}

/** Calls of one operator with the same input shapes. */
export interface OperatorShape {
  name: string;
  calls: number;
  device_self_ns: number | null;
  device_self_ratio: number | null;
  device_total_ns: number | null;
  host_self_ns: number;
  host_self_ratio: number;
  host_total_ns: number;
  tensor_core_eligible: boolean | null;
  tensor_core_self_ratio: number | null;
  tensor_core_total_ratio: number | null;
  input_dims: string | null;
}

/** Calls of one operator from the same Python stack. */
export interface OperatorStack {
  name: string;
  calls: number;
  device_self_ns: number | null;
  device_self_ratio: number | null;
  device_total_ns: number | null;
  host_self_ns: number;
  host_self_ratio: number;
  host_total_ns: number;
  tensor_core_eligible: boolean | null;
  tensor_core_self_ratio: number | null;
  tensor_core_total_ratio: number | null;
  stack: string | null;
}

/** Payload of `operators`. */
export interface OperatorsView {
  range: TimeRange | null;
  share_of: string;
  by: string;
  traces: TraceOperators[];
  missing: string | null;
  quality: QualityNote[];
}

/** Payload of `overview`. */
export interface Overview {
  range: TimeRange | null;
  run_id: string;
  command: string[];
  working_directory: string;
  created_ns: number;
  git_revision: string | null;
  versions: Record<string, string>;
  rank_count: number;
  nodes: NodeStatus[];
  recordings: Recording[];
  quality: QualityNote[];
  verdict: Verdict;
  duration_ns: number;
  step_ns: Statistics | null;
  step_parts: StepPart[];
  suspect_step_ns: number | null;
  gpu_busy_ratio: number | null;
  cpu_busy_ratio: number | null;
  money: Money | null;
  money_missing: string | null;
  findings: ShortFinding[];
  findings_missing: string | null;
}

/** A part of the mean step; the changes of `rows` and `rest_ns` sum to `change_ns`. */
export interface PartContributions {
  part: string;
  base_ns: number;
  other_ns: number;
  change_ns: number;
  split_by: "calls" | "host causes" | "input stages" | null;
  split_of: string | null;
  base_scale: number | null;
  other_scale: number | null;
  rows: Contribution[];
  rest_ns: number;
  rest_count: number;
}

/** Peak rate of one unit and precision. */
export interface PeakRateView {
  unit: "bf16" | "fp16" | "fp32" | "fp32_matrix" | "fp4" | "fp64" | "fp64_matrix" | "fp8" | "int8" | "tf32";
  peak_flop_per_s: number;
}

/** Time of one phase over the measured steps. */
export interface PhaseShare {
  name: string;
  share_ratio: number;
  mean_ns: number;
  p50_ns: number;
  p95_ns: number;
}

/** Hourly price of one machine and its origin. */
export interface PriceUsed {
  usd_per_hour: number;
  said: string;
  instance_type: string | null;
  as_of: string | null;
  source: string | null;
}

/** Memory held at the peak for one purpose. */
export interface PurposeView {
  purpose: string;
  held_bytes: number;
  held_ratio: number;
}

/** Entry of the quality record that affects the figures of a view. */
export interface QualityNote {
  check: string;
  count: number;
  of_count: number | null;
  worst_ns: number | null;
  sentence: string;
}

/** Input pipeline of one training process. */
export interface RankPipeline {
  rank: string;
  loader: Record<string, unknown> | null;
  cores_available: number | null;
  waiting: WaitingView;
  making: MakingView | null;
  missing: string | null;
}

/** Steps of one rank or of one trace: to jump to, and to align ranks by. */
export interface RankSteps {
  group: string;
  title: string;
  numbers: number[];
  after_ns: number[];
  duration_ns: number[];
  outliers: number[];
  left_out_count: number;
}

/** Steps of one training process. */
export interface RankStepsView {
  rank: string;
  process: string;
  source: string;
  clock: string;
  step_count: number;
  measured_count: number;
  profiled_count: number;
  fetches_per_step: number;
  step_ns: Statistics | null;
  phases: PhaseShare[];
  evaluation_ns: number;
  outlier_steps: number[];
}

/** Trace of one rank: from the first start to the last end of work on its devices. */
export interface RankTime {
  total_ns: number;
  computation_ns: number;
  overlap_ns: number;
  communication_ns: number;
  other_ns: number;
  rank: number | null;
  trace: string;
  work_on: "devices" | "host";
  computation_ratio: number | null;
  overlap_ratio: number | null;
  communication_ratio: number | null;
  other_ratio: number | null;
  hidden_ratio: number | null;
  collective_count: number;
  matched_count: number;
  transfer_ns: number | null;
  waiting_ns: number | null;
  unmatched_ns: number | null;
  last_count: number;
  steps: DividedSteps | null;
  missing: string | null;
}

/** Traces of different ranks made at the same time. */
export interface RankWindow {
  name: string;
  ranks: RankTime[];
  collectives: Collective[];
  rank_collectives: Collective[];
  notes: string[];
}

/** One step; its categories sum to `wall_ns`, with unknown ones in `other_ns`. */
export interface RecordedStep {
  step: string;
  wall_ns: number;
  kernel_ns: number | null;
  memcpy_ns: number | null;
  memset_ns: number | null;
  communication_ns: number | null;
  runtime_ns: number | null;
  data_loader_ns: number | null;
  cpu_exec_ns: number | null;
  other_ns: number;
  device_work_count: number;
}

/** Reason and contents of a window of the job. */
export interface RecordedWindow {
  reason: string;
  depth: string;
  options: string[];
  first_step: number;
  step_count: number;
}

/** One trace of the framework's profiler. */
export interface Recording {
  name: string;
  rank: number | null;
  start_ns: number;
  duration_ns: number;
  event_count: number;
  clock_base_ns: number | null;
  window: RecordedWindow | null;
}

/** One trace of the framework's profiler. */
export interface RecordingName {
  trace: string;
  rank: number | null;
  event_count: number;
  duration_ns: number;
  first_step: number | null;
}

/** Payload of `recordings`. */
export interface RecordingsView {
  recordings: RecordingName[];
  missing: string | null;
}

/** Time that calls of one group would save on their roofline. */
export interface RooflineGap {
  name: string;
  input_dims: string | null;
  bound: "compute" | "memory" | null;
  saved_ns: number;
  saved_ratio: number;
  roofline_ratio: number;
}

/** Calls of one operator with the same arguments; unknown figures are null. */
export interface RooflineGroup {
  name: string;
  family: "attention" | "compiled" | "convolution" | "elementwise" | "embedding" | "gemm" | "movement" | "normalization" | "optimizer" | "reduction" | "softmax" | null;
  input_dims: string | null;
  calls: number;
  device_ns: number;
  time_ratio: number;
  mean_ns: number;
  p50_ns: number;
  min_ns: number;
  max_ns: number;
  precision: "bf16" | "fp16" | "fp32" | "fp4" | "fp64" | "fp8" | "int8" | "tf32" | null;
  call_flop: number | null;
  call_bytes: number | null;
  intensity_flop_per_byte: number | null;
  achieved_flop_per_s: number | null;
  achieved_bytes_per_s: number | null;
  mean_of_calls_flop_per_s: number | null;
  mean_of_calls_bytes_per_s: number | null;
  bound: "compute" | "memory" | null;
  roofline_ns: number | null;
  roofline_ratio: number | null;
  peak_compute_ratio: number | null;
  peak_bandwidth_ratio: number | null;
  anomaly: string | null;
  input_types: string | null;
  input_strides: string | null;
  concrete_inputs: string | null;
  estimate: string | null;
  reason: string | null;
}

/** Payload of `roofline`. */
export interface RooflineView {
  range: TimeRange | null;
  traces: TraceRoofline[];
  missing: string | null;
  quality: QualityNote[];
}

/** One rule and its finding. */
export interface RuleInsight {
  rule: string;
  summary: string;
  status: RuleStatus;
  triggered_count: number;
  violation_count: number;
  datapoint_count: number;
  first_after_ns: number | null;
  last_after_ns: number | null;
  sentences: string[];
  recommendation: string;
  nodes: string[];
  ranks: string[];
  devices: string[];
  evidence: string[];
  charts: EvidenceChart[];
  parameters: RuleParameter[];
  page: string;
  details: Record<string, unknown>;
  missing: string | null;
  error: string | null;
}

/** One parameter of a rule. */
export interface RuleParameter {
  name: string;
  value: string;
  default: string | null;
  takes: string;
  doc: string;
}

/** Values that one process logged under one name, in order of time. */
export interface ScalarSeries {
  name: string;
  process: string;
  rank: number | null;
  statistics: Statistics | null;
  nan_count: number;
  values_per_point: number;
  after_ns: number[];
  value: (number | null)[];
}

/** `timeline-search`: events by part of their name, regardless of case, in time order. With `around` (nanoseconds after the origin), the matches next to that time are listed. */
export interface SearchView {
  name: string;
  match_count: number;
  before_count: number;
  total_ns: number;
  matches: Match[];
}

/** A setting that is not the same; null where a run did not record it. */
export interface SettingChange {
  group: string;
  name: string;
  base: string | null;
  other: string | null;
}

/** Rule that fired; `insights` has all details. */
export interface ShortFinding {
  rule: string;
  triggered_count: number;
  sentence: string;
  recommendation: string;
  first_after_ns: number | null;
  last_after_ns: number | null;
}

/** `timeline-slice`: details of one event. */
export interface SliceView {
  track: string;
  event: number;
  name: string;
  kind: string;
  after_ns: number;
  duration_ns: number;
  row: number;
  self_ns: number | null;
  step: string | null;
  args: Record<string, unknown>;
  stack: string[];
  links: Linked[];
}

/** `timeline-slices`: a window of tracks at the detail that the requested pixels can show. */
export interface SlicesView {
  from_after_ns: number;
  to_after_ns: number;
  names: string[];
  tracks: TrackSlices[];
  omitted_tracks: string[];
}

/** Stage of batch creation. */
export interface StageView {
  name: string;
  of_making_ratio: number;
  of_step_ratio: number;
  labels: Record<string, number>;
}

/** A distribution, in the unit named by the field that holds it. */
export interface Statistics {
  count: number;
  mean: number;
  standard_deviation: number;
  min: number;
  p50: number;
  p95: number;
  p99: number;
  max: number;
  outlier_count: number;
  outlier_threshold: number;
}

/** Change of one figure of the steps. */
export interface StepChange {
  name: string;
  base_ns: number;
  other_ns: number;
  change_ns: number;
  change_ratio: number | null;
  estimate_ns: number;
  low_ns: number | null;
  high_ns: number | null;
  noise_ns: number | null;
  beyond_noise: boolean;
}

/** Changes of the steps. */
export interface StepChanges {
  source: "recorded" | "watched";
  share_of: string;
  figures: StepChange[];
  parts: StepChange[];
  noise_of: "pairs" | "runs" | "steps";
  interval_percent: number;
  noise: string;
}

/** Histogram of step durations. */
export interface StepDurations {
  source: "recorded" | "watched";
  edges_ns: number[];
  counts: number[];
  above_count: number;
  count: number;
  mean_ns: number;
  p50_ns: number;
  p95_ns: number;
}

/** Step durations: rows by rank, columns by step. */
export interface StepMatrix {
  source: "recorded" | "watched";
  ranks: string[];
  steps: string[];
  steps_per_column: number;
  duration_ns: ((number | null)[])[];
  step_count: number;
  slowest_count: number[];
  excess_ns: (number | null)[];
  notes: string[];
}

/** One phase of the mean step; they sum to it. */
export interface StepPart {
  phase: string;
  mean_ns: number;
  share_ratio: number;
}

/** FLOPs utilization of one step. */
export interface StepUtilization {
  step: string;
  step_ns: number;
  matrix_flop: number | null;
  mfu_ratio: number | null;
}

/** Payload of `steps`. */
export interface StepsView {
  range: TimeRange | null;
  share_of: string;
  ranks: RankStepsView[];
  traces: TraceStepsView[];
  missing: string | null;
  quality: QualityNote[];
}

/** One stream, from its first work to its last; busy and the three waits sum to the span. */
export interface StreamIdleView {
  stream: number | null;
  device: number;
  work_count: number;
  span_ns: number;
  busy_ns: number;
  idle_ns: number;
  host_wait_ns: number;
  kernel_wait_ns: number;
  other_ns: number;
  host_wait_ratio: number | null;
  kernel_wait_ratio: number | null;
  other_ratio: number | null;
  host_wait_count: number;
  kernel_wait_count: number;
  other_count: number;
  longest_host_wait_ns: number;
}

/** Launches queued on one stream, from its first launch to its last start. */
export interface StreamQueue {
  stream: number | null;
  launch_count: number;
  span_ns: number;
  mean_depth: number;
  largest_depth: number;
  blocked_ns: number;
  depth_curve: number[];
}

/** `timeline-summary`: a range of tracks in numbers. */
export interface SummaryView {
  from_after_ns: number;
  to_after_ns: number;
  tracks: TrackSummary[];
  notes: string[];
}

/** Payload of `system-heat`. */
export interface SystemHeatView {
  range: TimeRange | null;
  start_after_ns: number;
  column_ns: number;
  nodes: NodeHeatMap[];
  left_out_nodes: string[];
  missing: string | null;
}

/** Payload of `system-series`. */
export interface SystemSeriesView {
  range: TimeRange | null;
  start_after_ns: number;
  piece_ns: number;
  piece_count: number;
  nodes: NodeSeries[];
  left_out_count: number;
  notes: string[];
  missing: string | null;
}

/** Payload of `system`. */
export interface SystemView {
  range: TimeRange | null;
  nodes: NodeView[];
  missing: string | null;
}

/** Payload of `tensors`. */
export interface TensorsView {
  range: TimeRange | null;
  scalars: ScalarSeries[];
  left_out_count: number;
  tensors_missing: string;
  missing: string | null;
}

/** Range of time that a payload is about. */
export interface TimeRange {
  from_after_ns: number;
  to_after_ns: number;
  range_of: string;
  notes: string[];
}

/** One part of a breakdown. */
export interface TimeShare {
  name: string;
  count: number;
  total_ns: number;
  share_ratio: number;
}

/** `timeline`: the tree of tracks, with steps and findings. */
export interface TimelineView {
  origin_ns: string;
  end_after_ns: number;
  groups: TrackGroup[];
  steps: RankSteps[];
  findings: FindingMark[];
  notes: string[];
  quality: QualityNote[];
  missing: string | null;
}

/** Activity of one trace. */
export interface TraceActivity {
  rank: number | null;
  trace: string;
  activities: ActivityView[];
  copies: CopyKindView[];
  missing: string | null;
  quality: QualityNote[];
}

/** All devices of one trace together; times are null without device work. */
export interface TraceGpuTime {
  rank: number | null;
  trace: string;
  total_ns: number | null;
  busy_ns: number | null;
  idle_ns: number | null;
  compute_ns: number | null;
  memset_ns: number | null;
  comm_ns: number | null;
  exposed_comm_ns: number | null;
  exposed_memcpy_ns: number | null;
  same_stream_overlap_count: number | null;
  gpu_event_count: number;
  shares: GpuShares | null;
  comm_hidden_ratio: number | null;
  devices: DeviceGpuTime[];
  missing: string | null;
  quality: QualityNote[];
}

/** Streams of one trace. */
export interface TraceIdle {
  rank: number | null;
  trace: string;
  streams: StreamIdleView[];
  missing: string | null;
  quality: QualityNote[];
}

/** Kernels of one trace. */
export interface TraceKernels {
  rank: number | null;
  trace: string;
  group_count: number;
  call_count: number;
  total_ns: number;
  tensor_core_ratio: number | null;
  communication_ratio: number | null;
  carry_over_count: number;
  carry_over_ns: number;
  kernels: KernelGroup[];
  launches: KernelLaunches[];
  graphs: GraphReplays[];
  missing: string | null;
  quality: QualityNote[];
}

/** Launches of one trace. */
export interface TraceLaunches {
  rank: number | null;
  trace: string;
  calls: CallLaunches[];
  bucket_ns: number | null;
  queues: StreamQueue[];
  missing: string | null;
  quality: QualityNote[];
}

/** Memory of one trace. */
export interface TraceMemory {
  rank: number | null;
  trace: string;
  devices: DeviceMemoryView[];
  missing: string | null;
  quality: QualityNote[];
}

/** Devices of one trace. */
export interface TraceMetrics {
  rank: number | null;
  trace: string;
  range_ns: number | null;
  bucket_ns: number | null;
  devices: DeviceMetrics[];
  missing: string | null;
  notes: string[];
  quality: QualityNote[];
}

/** Modules of one trace, each before the modules inside it. */
export interface TraceModules {
  rank: number | null;
  trace: string;
  source: string | null;
  module_count: number;
  operator_device_ns: number | null;
  outside_device_ns: number | null;
  modules: Module[];
  missing: string | null;
  notes: string[];
  quality: QualityNote[];
}

/** Flame graph of one trace. */
export interface TraceModulesFlame {
  rank: number | null;
  trace: string;
  total_ns: number;
  outside_ns: number;
  roots: FlameNode[];
  left_out_ns: number;
  missing: string | null;
  quality: QualityNote[];
}

/** Operators of one trace. */
export interface TraceOperators {
  rank: number | null;
  trace: string;
  group_count: number;
  call_count: number;
  host_self_ns: number;
  device_self_ns: number | null;
  operators: OperatorGroup[];
  shapes: OperatorShape[];
  stacks: OperatorStack[];
  missing: string | null;
  notes: string[];
  quality: QualityNote[];
}

/** Roofline of one trace. */
export interface TraceRoofline {
  rank: number | null;
  trace: string;
  share_of: string | null;
  hardware: DeviceView | null;
  computing_ns: number | null;
  modelled_ns: number | null;
  modelled_ratio: number | null;
  communication_ns: number | null;
  carry_over_ns: number | null;
  group_count: number;
  families: FamilyTotals[];
  groups: RooflineGroup[];
  gaps: RooflineGap[];
  utilization: Utilization | null;
  missing: string | null;
  notes: string[];
  quality: QualityNote[];
}

/** Steps of one trace. */
export interface TraceStepsView {
  rank: number | null;
  trace: string;
  carry_over: "drop" | "keep";
  step_count: number;
  cut_off: string[];
  share_of: string;
  mean_step_ns: number;
  categories: CategoryShare[];
  steps: RecordedStep[];
  host_steps: HostStep[];
  notes: string[];
  quality: QualityNote[];
}

/** A track of the tree. */
export interface Track {
  id: string;
  name: string;
  kind: "counter" | "device" | "host" | "spans";
  row_count: number;
  unit: string;
  event_count: number | null;
}

/** A node, a process, a trace or a device, with its groups and tracks. */
export interface TrackGroup {
  id: string;
  name: string;
  kind: "counters" | "device" | "node" | "process" | "recording";
  rank: number | null;
  groups: TrackGroup[];
  tracks: Track[];
}

/** Slices of one track within a window, column by column, sorted by row and start. A slice is one event, or a summary of events that are too short to be visible. */
export interface TrackSlices {
  track: string;
  row_count: number;
  row: number[];
  after_ns: number[];
  duration_ns: number[];
  name: number[];
  count: number[];
  busy_ratio: number[];
  event: number[];
}

/** Sums of a track within a range. */
export interface TrackSummary {
  track: string;
  event_count: number;
  busy_ns: number;
  busy_ratio: number;
  gap_count: number;
  longest_gap_ns: number;
  name_count: number;
  names: NameTime[];
}

/** One node over time, as means of bins of time; null where nothing was sampled. */
export interface Utilisation {
  node: string;
  gpu_busy_ratio: (number | null)[];
  cpu_busy_ratio: (number | null)[];
}

/** All nodes on one time axis. */
export interface UtilisationOverTime {
  start_after_ns: number;
  piece_ns: number;
  nodes: Utilisation[];
}

/** Model FLOPs utilization (MFU). */
export interface Utilization {
  share_of: string;
  precision: "bf16" | "fp16" | "fp32" | "fp4" | "fp64" | "fp8" | "int8" | "tf32" | null;
  peak_flop_per_s: number | null;
  mean_mfu_ratio: number | null;
  modelled_ratio: number | null;
  steps: StepUtilization[];
  notes: string[];
}

/** Data wait by reason, as shares of the rank's measured steps; they sum to `share_ratio`. */
export interface WaitingView {
  share_ratio: number;
  starting_ratio: number;
  handing_over_ratio: number;
  making_ratio: number;
  starved_ratio: number | null;
}

/** Payloads by their names in the API. */
export interface Views {
  "overview": Overview;
  "recordings": RecordingsView;
  "steps": StepsView;
  "system": SystemView;
  "system-heat": SystemHeatView;
  "system-series": SystemSeriesView;
  "input-pipeline": InputPipelineView;
  "gpu-time": GpuTimeView;
  "idle": IdleView;
  "launches": LaunchesView;
  "gpu-metrics": GpuMetricsView;
  "activity": ActivitiesView;
  "operators": OperatorsView;
  "kernels": KernelsView;
  "memory": MemoryView;
  "modules": ModulesView;
  "modules-flame": ModulesFlameView;
  "roofline": RooflineView;
  "annotations": AnnotationsView;
  "distributed": DistributedView;
  "dashboard": Dashboard;
  "insights": InsightsView;
  "tensors": TensorsView;
  "timeline": TimelineView;
  "timeline-slices": SlicesView;
  "timeline-counters": CountersView;
  "timeline-slice": SliceView;
  "timeline-search": SearchView;
  "timeline-summary": SummaryView;
  "timeline-flame": FlameView;
  "jobs": Jobs;
  "compare": Comparison;
}
