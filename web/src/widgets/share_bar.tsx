// Whole divided into named parts: a patterned bar with a legend of percentages.
import { percent } from "../base/quantities";

export interface Segment {
  name: string;
  ratio: number;
  /** Amount in another unit. */
  amount?: string | undefined;
  /** Number of its colour; by default its position. */
  colour?: number;
}

interface Props {
  label: string;
  segments: Segment[];
}

export function ShareBar({ label, segments }: Props) {
  const visibleSegments = segments.filter((segment) => segment.ratio > 0);
  return (
    <div class="shares">
      <div class="share-bar" aria-hidden="true">
        {visibleSegments.map((segment) => (
          <i
            key={segment.name}
            class={`segment p${segment.colour ?? segments.indexOf(segment) % 8}`}
            style={{ width: `${100 * segment.ratio}%` }}
            title={`${segment.name} ${percent(segment.ratio, 1)}`}
          />
        ))}
      </div>
      <ul aria-label={label}>
        {segments.map((segment, index) => (
          <li key={segment.name}>
            <i class={`segment p${segment.colour ?? index % 8}`} aria-hidden="true" />
            <span>{segment.name}</span>
            <b>{percent(segment.ratio, 1)}</b>
            {segment.amount === undefined ? null : <span class="muted">{segment.amount}</span>}
          </li>
        ))}
      </ul>
    </div>
  );
}
