// Ratio as a bar with its number, for table cells.
import { percent } from "../base/quantities";

export function RatioBar({ ratio }: { ratio: number | null }) {
  const width = ratio === null ? 0 : 100 * Math.min(1, Math.max(0, ratio));
  return (
    <span class="ratio-bar">
      <i aria-hidden="true"><b style={{ width: `${width}%` }} /></i>
      <span>{percent(ratio, 1)}</span>
    </span>
  );
}
