// Tiles with key figures.
import { Prose } from "./prose";

export interface Tile {
  label: string;
  value: string;
  /** Denominator or origin of the number. */
  caption?: string | null | undefined;
  /** Test id of the number. */
  testid?: string;
}

export function Tiles({ tiles }: { tiles: Tile[] }) {
  return (
    <dl class="tiles">
      {tiles.map((tile) => (
        <div key={tile.testid ?? tile.label}>
          <dt>{tile.label}</dt>
          <dd class={/\d/.test(tile.value) && tile.value.length < 9 ? "" : "text-value"} data-testid={tile.testid}>{tile.value}</dd>
          {tile.caption === undefined || tile.caption === null ? null : <dd class="muted"><Prose text={tile.caption} /></dd>}
        </div>
      ))}
    </dl>
  );
}
