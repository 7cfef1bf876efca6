// List of names and values.
import type { ComponentChildren } from "preact";

/** Name, value, and explanation of the name. */
export type Entry = readonly [string, ComponentChildren, (string | undefined)?];

/** Longer values span the full width. */
const MAX_INLINE_LENGTH = 80;

export function KeyValues({ entries }: { entries: readonly Entry[] }) {
  return (
    <dl class="key-values">
      {entries.map(([name, value, help]) => (
        <div key={name} class={typeof value === "string" && value.length < MAX_INLINE_LENGTH ? "" : "full-width"}>
          <dt title={help}>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
