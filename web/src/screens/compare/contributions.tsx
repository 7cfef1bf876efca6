// Contributions of calls, stages and causes to the change of the mean step.
import type { Contribution, Contributions as Payload } from "../../api/views";
import { change, number } from "../../base/quantities";
import { sentence, words } from "../../base/text";
import { LinkedTable } from "../../parts/linked_table";
import { rowKey } from "../../parts/row_key";
import { column, columns } from "../../widgets/fields";
import { EmptyState } from "../../widgets/resource_view";

interface Row extends Contribution {
  part: string;
}

export function Contributions({ contributions }: { contributions: Payload }) {
  const rows = contributions.parts.flatMap((part) => part.rows.map((row): Row => ({ part: part.part, ...row })));
  rows.sort((a, b) => Math.abs(b.change_ns) - Math.abs(a.change_ns));
  const rest = contributions.change_ns - rows.reduce((sum, row) => sum + row.change_ns, 0);
  const splits = new Set(contributions.parts.flatMap((part) => (part.split_of === null ? [] : [part.split_of])));
  if (rows.length === 0) return <EmptyState title="Contributions" text={contributions.missing ?? "neither run has a breakdown of its steps"} />;
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
        "Contribution", "name", column("part", "part", "none", (row) => words(row.part)),
        ["path", { value: (row) => row.path.join(" > ") }], ["status", { value: (row) => words(row.status) }],
        "base_ns", "other_ns", "change_ns", "base_busy_ns", "other_busy_ns",
        column("calls", "calls", "none", (row) => (row.base_calls === null || row.other_calls === null ? null : `${number(row.base_calls)} to ${number(row.other_calls)}`)),
      )}
    />
  );
}
