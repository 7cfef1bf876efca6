// Registry of screens: path, title, group, icon and the script that renders each.
import {
  Activity, Blocks, Boxes, Cpu, Gauge, GitCompare, Layers, Lightbulb, List, MemoryStick,
  Microchip, Mountain, Network, Ruler, Tags, Truck, Variable,
} from "lucide";
import type { IconNode } from "lucide";
import type { ComponentType } from "preact";

export interface ScreenEntry {
  /** URL path. */
  name: string;
  title: string;
  group: "run" | "host" | "device" | "job";
  icon: IconNode;
  load: () => Promise<{ default: ComponentType }>;
}

export const JOBS: ScreenEntry = {
  name: "", title: "Jobs", group: "run", icon: List, load: () => import("../screens/jobs"),
};

export const SCREENS: readonly ScreenEntry[] = [
  { name: "overview", title: "Overview", group: "run", icon: Gauge, load: () => import("../screens/overview") },
  { name: "timeline", title: "Timeline", group: "run", icon: Activity, load: () => import("../screens/timeline") },
  { name: "insights", title: "Insights", group: "run", icon: Lightbulb, load: () => import("../screens/insights") },
  { name: "steps", title: "Steps", group: "host", icon: Ruler, load: () => import("../screens/steps") },
  { name: "input-pipeline", title: "Input pipeline", group: "host", icon: Truck, load: () => import("../screens/input_pipeline") },
  { name: "operators", title: "Operators", group: "host", icon: Blocks, load: () => import("../screens/operators") },
  { name: "modules", title: "Modules", group: "host", icon: Layers, load: () => import("../screens/modules") },
  { name: "annotations", title: "Annotations", group: "host", icon: Tags, load: () => import("../screens/annotations") },
  { name: "gpu", title: "GPU", group: "device", icon: Microchip, load: () => import("../screens/gpu") },
  { name: "kernels", title: "Kernels", group: "device", icon: Boxes, load: () => import("../screens/kernels") },
  { name: "memory", title: "Memory", group: "device", icon: MemoryStick, load: () => import("../screens/memory") },
  { name: "roofline", title: "Roofline", group: "device", icon: Mountain, load: () => import("../screens/roofline") },
  { name: "system", title: "System", group: "job", icon: Cpu, load: () => import("../screens/system") },
  { name: "distributed", title: "Distributed", group: "job", icon: Network, load: () => import("../screens/distributed") },
  { name: "tensors", title: "Tensors", group: "job", icon: Variable, load: () => import("../screens/tensors") },
  { name: "compare", title: "Compare", group: "job", icon: GitCompare, load: () => import("../screens/compare") },
];

export const GROUPS: readonly (readonly [ScreenEntry["group"], string])[] = [
  ["run", "Run"], ["host", "Host"], ["device", "Device"], ["job", "Job"],
];

