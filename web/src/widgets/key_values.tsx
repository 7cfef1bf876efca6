// List of names and values.
import type { ComponentChildren } from "preact";

export type Entry = readonly [string, ComponentChildren];

/** Longer values span the full width. */
const MAX_INLINE_LENGTH = 80;

export function KeyValues({ entries }: { entries: readonly Entry[] }) {
  return (
    <dl class="key-values">
      {entries.map(([name, value]) => (
        <div key={name} class={typeof value === "string" && value.length < MAX_INLINE_LENGTH ? "" : "full-width"}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
