// Curves of logged scalars, one plot per name.
import type { ScalarSeries } from "../../api/views";
import type { Plot } from "../../charts/plot";

export function scalarPlots(scalars: readonly ScalarSeries[]): Plot[] {
  const byName = new Map<string, ScalarSeries[]>();
  for (const series of scalars) byName.set(series.name, [...(byName.get(series.name) ?? []), series]);
  return [...byName].map(([name, seriesList]) => {
    const values = seriesList.flatMap((series) => [series.statistics?.min ?? 0, series.statistics?.max ?? 0]);
    const valuesPerPoint = Math.max(...seriesList.map((series) => series.values_per_point));
    return {
      kind: "plot",
      title: name.slice(0, 200),
      x: { name: "after the start of the run", unit: "ns" },
      y: { name: "value", unit: "none", ...(Math.min(...values) < 0 ? { min: Math.min(...values) } : {}) },
      series: seriesList.map((series) => ({
        name: series.rank === null ? series.process.slice(0, 60) : `rank ${series.rank}`,
        x: series.after_ns,
        y: series.value,
      })),
      note: valuesPerPoint > 1 ? `Each point is the mean of up to ${valuesPerPoint} values.` : null,
    };
  });
}
