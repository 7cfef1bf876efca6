// Chip with the selected time range and a button that clears it.
import { X } from "lucide";

import { duration } from "../base/quantities";
import { param, setParams } from "../state/url";
import { IconButton } from "../widgets/icon_button";

const from = param("from");
const to = param("to");

export function RangeChip() {
  if (from.value === null && to.value === null) return null;
  const text = `${timeText(from.value, "start")} to ${timeText(to.value, "end")}`;
  return (
    <span class="chip" title="All screens show this range of the run">
      {text}
      <IconButton class="" icon={X} label="Show the full run" size={14} onClick={() => { setParams({ from: null, to: null }); }} />
    </span>
  );
}

/** Format a time from the URL: nanoseconds, or as a user typed it, such as 12.5s. */
function timeText(text: string | null, fallback: string): string {
  if (text === null) return fallback;
  const ns = Number(text);
  return Number.isFinite(ns) ? duration(ns) : text;
}
