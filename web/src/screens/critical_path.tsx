// Critical path: what the time of the steps consists of, and what fixes would save.
import { useTabs } from "../parts/tabs";
import { Path } from "./critical_path/path";
import { WhatIf } from "./critical_path/what_if";

const TABS = [
  ["path", "Path"],
  ["what-if", "What if"],
] as const;

const CONTENT = { path: Path, "what-if": WhatIf };

export default function CriticalPath() {
  const { selected, bar } = useTabs(TABS);
  const Content = CONTENT[selected];
  return <Content key={selected} tabs={bar} />;
}
