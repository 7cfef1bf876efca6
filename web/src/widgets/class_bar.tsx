// Time by class: one bar, and its legend.
import { background, fillOf } from "../base/job_classes";
import { palette } from "../base/palette";
import { percent } from "../base/quantities";
import { dark } from "../base/theme";

export interface ClassPart {
  key: string;
  title: string;
  ratio: number;
  /** Amount in another unit. */
  amount: string;
  /** Tooltip. */
  description: string;
}

export function ClassBar({ parts }: { parts: readonly ClassPart[] }) {
  return (
    <div class="job-bar" aria-hidden="true">
      {parts.map(({ key, ratio, description }) => <i key={key} title={description} style={{ flexGrow: ratio, background: fill(key) }} />)}
    </div>
  );
}

export function ClassLegend({ label, parts }: { label: string; parts: readonly ClassPart[] }) {
  return (
    <ul class="job-legend" aria-label={label}>
      {parts.map(({ key, title, ratio, amount, description }) => (
        <li key={key} title={description}>
          <i style={{ background: fill(key) }} aria-hidden="true" />
          {title} <b>{percent(ratio)}</b> <span class="muted">{amount}</span>
        </li>
      ))}
    </ul>
  );
}

function fill(key: string): string {
  return background(fillOf(key, palette(dark.value)));
}
