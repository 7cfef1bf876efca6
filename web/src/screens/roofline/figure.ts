// Roofline plot: a slope for memory bandwidth, a level for the peak of each precision.
import type { DeviceView, RooflineGroup } from "../../api/views";
import type { Plot, Series } from "../../charts/plot";

/** Round to a power of ten, up or down. */
function decade(value: number, roundUp: boolean): number {
  return 10 ** (roundUp ? Math.ceil(Math.log10(value)) : Math.floor(Math.log10(value)));
}

interface Point {
  x: number;
  y: number;
  name: string;
}

export function rooflinePlot(device: DeviceView, groups: readonly RooflineGroup[]): Plot {
  const byPrecision = new Map<string, Point[]>();
  for (const group of groups) {
    const { intensity_flop_per_byte: x, achieved_flop_per_s: y } = group;
    if (x === null || y === null || x <= 0 || y <= 0) continue;
    const precision = group.precision ?? "unknown precision";
    const point = { x, y, name: `${group.name} ${group.input_dims ?? ""}`.slice(0, 200) };
    byPrecision.set(precision, [...(byPrecision.get(precision) ?? []), point]);
  }
  const points = [...byPrecision.values()].flat();
  const peaks = device.peaks.filter((peak) => byPrecision.has(peak.unit));
  const min = decade(Math.min(0.1, ...points.map(({ x }) => x)), false);
  const max = decade(Math.max(1000, ...points.map(({ x }) => x)), true);
  return {
    kind: "plot",
    title: "Roofline",
    x: { name: "FLOP per byte", unit: "count", log: true, min, max },
    y: { name: "achieved", unit: "flop_per_s", log: true },
    series: [...roofs(device, peaks, min, max), ...[...byPrecision].map(pointsOf)],
    note: `One point per modelled call group. Lines show the peak rates of the device${device.estimate ? " (estimated)" : ""}.`,
  };
}

function pointsOf([precision, points]: [string, Point[]]): Series {
  return {
    name: `calls in ${precision}`,
    x: points.map(({ x }) => x),
    y: points.map(({ y }) => y),
    names: points.map(({ name }) => name),
    draw: "points",
  };
}

function roofs(device: DeviceView, peaks: DeviceView["peaks"], min: number, max: number): Series[] {
  const slope = device.memory_bytes_per_s;
  return peaks.map((peak) => {
    const flat = peak.peak_flop_per_s;
    const corner = slope === null ? null : flat / slope;
    const x = corner !== null && corner > min && corner < max ? [min, corner, max] : [min, max];
    return {
      name: `peak of ${peak.unit}`,
      x,
      y: x.map((intensity) => (slope === null ? flat : Math.min(flat, slope * intensity))),
    };
  });
}
