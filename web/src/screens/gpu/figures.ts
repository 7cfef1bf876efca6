// Figures of the GPU screens.
import type { DeviceMetrics, StreamIdle, TraceActivity, TraceLaunches, TraceMetrics } from "../../api/views";
import { duration } from "../../base/quantities";
import { partsOf } from "../../charts/from_payload";
import type { Plot } from "../../charts/plot";
import type { Stacks } from "../../charts/stacks";

/** Name of a stream in tables: its number. */
export function streamName(stream: number | null): string {
  return stream === null ? "unknown" : String(stream);
}

export function streamFigure(rows: readonly StreamIdle[]): Stacks {
  return {
    kind: "stacks",
    title: "Stream time",
    categoryName: "stream",
    categories: rows.map((row) => `GPU ${row.device} stream ${streamName(row.stream)}`),
    value: { name: "first to last work", unit: "ns" },
    horizontal: true,
    parts: partsOf("StreamIdle", rows, ["busy_ns", "host_wait_ns", "kernel_wait_ns", "other_ns"]),
  };
}

export function queueDepthFigure(trace: TraceLaunches): Plot {
  const bucket = trace.bucket_ns ?? 1;
  return {
    kind: "plot",
    title: "Pending work by stream",
    x: { name: "after the first launch", unit: "ns", min: 0 },
    y: { name: "max queue depth", unit: "count" },
    series: trace.queues.map((queue) => ({
      name: queue.stream === null ? "unknown stream" : `stream ${queue.stream}`,
      x: queue.depth_curve.map((_, index) => index * bucket),
      y: queue.depth_curve,
      draw: "step" as const,
    })),
  };
}

export function bandwidthFigure(trace: TraceActivity): Plot {
  const bucket = trace.bucket_ns ?? 1;
  return {
    kind: "plot",
    title: "Bandwidth of copies",
    x: { name: "after the start of the trace", unit: "ns", min: 0 },
    y: { name: `mean of ${duration(bucket)}`, unit: "bytes_per_s" },
    series: trace.bandwidth.map((row) => ({
      name: row.direction,
      x: row.curve_bytes_per_s.map((_, index) => index * bucket),
      y: row.curve_bytes_per_s,
      draw: "step" as const,
    })),
  };
}

export function utilizationFigure(trace: TraceMetrics): Plot {
  const bucket = trace.bucket_ns ?? 1;
  const bucketStarts = (count: number): number[] => Array.from({ length: count }, (_, index) => index * bucket);
  const seriesName = (device: DeviceMetrics, metric: string): string =>
    trace.devices.length > 1 ? `GPU ${device.device} ${metric}` : metric;
  return {
    kind: "plot",
    title: "Utilization over time",
    x: { name: "after the start of the first step", unit: "ns", min: 0 },
    y: { name: "share of each interval", unit: "ratio", max: 1 },
    series: trace.devices.flatMap((device) => {
      const busy = device.utilization_curve_ratio;
      const efficiency = device.est_sm_efficiency_curve_ratio;
      return [
        { name: seriesName(device, "utilization"), x: bucketStarts(busy.length), y: busy, draw: "step" as const },
        ...(efficiency === null
          ? []
          : [{ name: seriesName(device, "est. SM efficiency"), x: bucketStarts(efficiency.length), y: efficiency, draw: "step" as const }]),
      ];
    }),
    note: trace.bucket_ns === null ? null : `Each value is the mean of ${duration(bucket)}.`,
  };
}
