// Curves of logged numbers, those of one name together.
import type { ScalarSeries } from "../../api/views";
import type { Plot } from "../../charts/plot";

export function scalarPlots(scalars: readonly ScalarSeries[]): Plot[] {
  const byName = new Map<string, ScalarSeries[]>();
  for (const each of scalars) byName.set(each.name, [...(byName.get(each.name) ?? []), each]);
  return [...byName].map(([name, all]) => {
    const values = all.flatMap((each) => [each.statistics?.min ?? 0, each.statistics?.max ?? 0]);
    const thinned = Math.max(...all.map((each) => each.values_per_point));
    return {
      kind: "plot",
      title: name.slice(0, 200),
      x: { name: "after the start of the run", unit: "ns" },
      y: { name: "value", unit: "none", ...(Math.min(...values) < 0 ? { min: Math.min(...values) } : {}) },
      series: all.map((each) => ({
        name: each.rank === null ? each.process.slice(0, 60) : `rank ${each.rank}`,
        x: each.after_ns,
        y: each.value,
      })),
      note: thinned > 1 ? `A point is the mean of up to ${thinned} values.` : null,
    };
  });
}
