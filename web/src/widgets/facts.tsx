// Names with their values, as of a row that was chosen.
import type { ComponentChildren } from "preact";

export type Fact = readonly [string, ComponentChildren];

/** Values longer than this have a line of their own. */
const LONG = 80;

export function Facts({ facts }: { facts: readonly Fact[] }) {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name} class={typeof value === "string" && value.length < LONG ? "" : "whole"}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
