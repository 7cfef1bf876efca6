// Line of a few values in a cell of a table.
import { dark } from "../base/theme";
import { palette } from "../base/palette";

const [WIDTH, HEIGHT, MARGIN] = [60, 20, 2];

interface Props {
  values: readonly number[];
  /** Accessible name. */
  label: string;
}

export function Sparkline({ values, label }: Props) {
  return (
    <svg class="sparkline" width={WIDTH} height={HEIGHT} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={label}>
      <title>{label}</title>
      <polyline points={sparklinePoints(values)} fill="none" stroke={palette(dark.value).series[0]} stroke-width="1.5" stroke-linejoin="round" />
    </svg>
  );
}

/** Points of the line, on an axis from zero to the largest value. */
export function sparklinePoints(values: readonly number[]): string {
  const [low, high] = [0, Math.max(...values)];
  const scale = (value: number): number => (high > low ? (value - low) / (high - low) : 0.5);
  const drawn = values.length === 1 ? [...values, ...values] : values;
  return drawn
    .map((value, index) => {
      const x = MARGIN + ((WIDTH - 2 * MARGIN) * index) / (drawn.length - 1);
      return `${x.toFixed(1)},${(HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * scale(value)).toFixed(1)}`;
    })
    .join(" ");
}
