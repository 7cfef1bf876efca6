// GPU time of one trace.
import { useTabs } from "../parts/tabs";
import { Activity } from "./gpu/activity";
import { Idle } from "./gpu/idle";
import { Launches } from "./gpu/launches";
import { Metrics } from "./gpu/metrics";
import { Time } from "./gpu/time";

const TABS = [
  ["time", "Time"],
  ["metrics", "Utilization"],
  ["idle", "Idle time"],
  ["launches", "Launches"],
  ["activity", "Activity"],
] as const;

const CONTENT = { time: Time, metrics: Metrics, idle: Idle, launches: Launches, activity: Activity };

export default function Gpu() {
  const { selected, bar } = useTabs(TABS);
  const Content = CONTENT[selected];
  return <Content key={selected} tabs={bar} />;
}
