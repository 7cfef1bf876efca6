// Whole divided into named parts: a patterned bar with a legend of percentages.
import { percent } from "../base/quantities";

export interface Segment {
  name: string;
  ratio: number;
  /** Amount in another unit. */
  amount?: string | undefined;
}

interface Props {
  label: string;
  segments: Segment[];
}

export function ShareBar({ label, segments }: Props) {
  const visibleSegments = segments.filter((part) => part.ratio > 0);
  return (
    <div class="shares">
      <div class="share-bar" aria-hidden="true">
        {visibleSegments.map((part) => (
          <i
            key={part.name}
            class={`segment p${segments.indexOf(part) % 8}`}
            style={{ width: `${100 * part.ratio}%` }}
            title={`${part.name} ${percent(part.ratio, 1)}`}
          />
        ))}
      </div>
      <ul aria-label={label}>
        {segments.map((part, index) => (
          <li key={part.name}>
            <i class={`segment p${index % 8}`} aria-hidden="true" />
            <span>{part.name}</span>
            <b>{percent(part.ratio, 1)}</b>
            {part.amount === undefined ? null : <span class="muted">{part.amount}</span>}
          </li>
        ))}
      </ul>
    </div>
  );
}
