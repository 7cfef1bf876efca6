// Registry of screens: path, title, group, icon, views and the script that renders each.
import {
  Activity, Blocks, Boxes, Coins, Cpu, Database, Gauge, GitCompare, Layers, Lightbulb, List, MemoryStick,
  Microchip, Mountain, Network, Route, Ruler, Table, Tags, TreePine, Truck, Variable,
} from "lucide";
import type { IconNode } from "lucide";
import type { ComponentType } from "preact";

import type { ViewDescription } from "../state/schema";
import type { MissingView, Views } from "../api/views";

export interface ScreenEntry {
  /** URL path. */
  name: string;
  title: string;
  group: "run" | "host" | "device" | "job" | "more";
  icon: IconNode;
  /** Views that it draws; their names lead to it as well. Those that no screen names are drawn by the generic screen. */
  views?: readonly (keyof Views)[];
  load: () => Promise<{ default: ComponentType }>;
}

export const JOBS: ScreenEntry = {
  name: "", title: "Jobs", group: "run", icon: List, load: () => import("../screens/jobs"),
};

export const FLEET: ScreenEntry = {
  name: "fleet", title: "Fleet", group: "run", icon: Coins, load: () => import("../screens/fleet"),
};

/** Screens of all runs. */
export const OF_ALL_RUNS: readonly ScreenEntry[] = [JOBS, FLEET];

export const SCREENS: readonly ScreenEntry[] = [
  { name: "overview", title: "Overview", group: "run", icon: Gauge, views: ["overview", "job-time", "usage", "dashboard"], load: () => import("../screens/overview") },
  { name: "timeline", title: "Timeline", group: "run", icon: Activity, views: ["timeline", "timeline-slices", "timeline-counters", "timeline-slice", "timeline-search", "timeline-summary", "timeline-flame"], load: () => import("../screens/timeline") },
  { name: "insights", title: "Insights", group: "run", icon: Lightbulb, views: ["insights"], load: () => import("../screens/insights") },
  { name: "steps", title: "Steps", group: "host", icon: Ruler, views: ["steps", "step-series"], load: () => import("../screens/steps") },
  { name: "critical-path", title: "Critical path", group: "host", icon: Route, views: ["critical-path", "what-if"], load: () => import("../screens/critical_path") },
  { name: "input-pipeline", title: "Input pipeline", group: "host", icon: Truck, views: ["input-pipeline"], load: () => import("../screens/input_pipeline") },
  { name: "operators", title: "Operators", group: "host", icon: Blocks, views: ["operators"], load: () => import("../screens/operators") },
  { name: "modules", title: "Modules", group: "host", icon: Layers, views: ["modules", "modules-flame"], load: () => import("../screens/modules") },
  { name: "annotations", title: "Annotations", group: "host", icon: Tags, views: ["annotations"], load: () => import("../screens/annotations") },
  { name: "gpu", title: "GPU", group: "device", icon: Microchip, views: ["gpu-time", "gpu-metrics", "idle", "launches", "activity"], load: () => import("../screens/gpu") },
  { name: "kernels", title: "Kernels", group: "device", icon: Boxes, views: ["kernels"], load: () => import("../screens/kernels") },
  { name: "memory", title: "Memory", group: "device", icon: MemoryStick, views: ["memory"], load: () => import("../screens/memory") },
  { name: "roofline", title: "Roofline", group: "device", icon: Mountain, views: ["roofline"], load: () => import("../screens/roofline") },
  { name: "system", title: "System", group: "job", icon: Cpu, views: ["system", "system-heat", "system-series", "host-memory"], load: () => import("../screens/system") },
  { name: "ranks", title: "Ranks", group: "job", icon: Network, views: ["ranks", "nodes", "distributed"], load: () => import("../screens/ranks") },
  { name: "tensors", title: "Tensors", group: "job", icon: Variable, views: ["tensors", "tensor", "tensor-heat"], load: () => import("../screens/tensors") },
  { name: "xgboost", title: "XGBoost", group: "job", icon: TreePine, views: ["xgboost"], load: () => import("../screens/xgboost") },
  { name: "compare", title: "Compare", group: "job", icon: GitCompare, load: () => import("../screens/compare") },
  { name: "sql", title: "SQL", group: "job", icon: Database, load: () => import("../screens/sql") },
];

export const GROUPS: readonly (readonly [ScreenEntry["group"], string])[] = [
  ["run", "Run"], ["host", "Host"], ["device", "Device"], ["job", "Job"], ["more", "More views"],
];

const loadGeneric = () => import("../screens/generic");

/** Screens of the views that no other screen draws, such as those of installed packages. */
export function otherScreens(views: readonly ViewDescription[]): ScreenEntry[] {
  const drawn = new Set<string>(SCREENS.flatMap((entry) => [entry.name, ...(entry.views ?? [])]));
  return views
    .filter(({ name }) => !drawn.has(name))
    .map(({ name, title }) => ({ name, title, group: "more", icon: Table, load: loadGeneric }));
}

/** Screens for whose first view the run has no data, with the reason. */
export function missingScreens(screens: readonly ScreenEntry[], views: readonly MissingView[]): Map<ScreenEntry, string> {
  const reasons = new Map(views.map(({ name, reason }) => [name, reason]));
  return new Map(screens.flatMap((entry) => {
    const reason = reasons.get(entry.views?.[0] ?? entry.name);
    return reason === undefined ? [] : [[entry, reason] as const];
  }));
}

/** Return the screen of a name, or the one that draws the view of that name. */
export function screenOf(name: string, screens: readonly ScreenEntry[]): ScreenEntry | undefined {
  return [...OF_ALL_RUNS, ...screens].find((entry) => entry.name === name) ?? screens.find(({ views = [] }) => views.some((view) => view === name));
}
