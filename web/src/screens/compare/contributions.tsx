// Contributions of calls, stages and causes to the change of the mean step.
import type { Contribution, Contributions as Payload } from "../../api/views";
import { change, duration, number } from "../../base/quantities";
import { phaseName } from "../../base/phase_names";
import { sentence } from "../../base/text";
import { LinkedTable } from "../../parts/linked_table";
import { rowKey } from "../../parts/row_key";
import { column, columns } from "../../widgets/fields";

interface Row extends Contribution {
  part: string;
}

export function Contributions({ contributions }: { contributions: Payload }) {
  const rows = contributions.parts.flatMap((part) => part.rows.map((row): Row => ({ part: part.part, ...row })));
  rows.sort((a, b) => Math.abs(b.change_ns) - Math.abs(a.change_ns));
  const rest = contributions.change_ns - rows.reduce((sum, row) => sum + row.change_ns, 0);
  const splits = new Set(contributions.parts.flatMap((part) => (part.split_of === null ? [] : [part.split_of])));
  if (rows.length === 0) return <p class="muted">{sentence(`contributions to the change: ${contributions.missing ?? "neither run has a breakdown of its steps"}`)}</p>;
  return (
    <LinkedTable
      id="from"
      title="Contributions to the change"
      testid="table-compare-contributions"
      description={`Contribution of each row to the change of the mean step, ${change(contributions.change_ns, "ns")}. ${[...splits].map(sentence).join(" ")}`}
      rows={rows}
      keyOf={(row) => rowKey(row.part, row.kind, row.status, ...row.path, row.name)}
      footnote={rest === 0 ? contributions.missing : `remainder: ${change(rest, "ns")}`}
      fields={columns<"Contribution", Row>(
        "Contribution", "change_ns", "base_ns", "other_ns",
        column("busy", "busy", "none", (row) => both(row.base_busy_ns, row.other_busy_ns, duration)),
        column("calls", "calls", "none", (row) => both(row.base_calls, row.other_calls, number)),
        column("part", "part", "none", (row) => phaseName(row.part)),
        ["name", { isLongName: true }],
        ["path", { value: (row) => row.path.join(" > "), isLongName: true }],
      )}
    />
  );
}

/** Value in both runs; null if one is not known. */
function both(base: number | null, changed: number | null, format: (value: number) => string): string | null {
  return base === null || changed === null ? null : `${format(base)} → ${format(changed)}`;
}
