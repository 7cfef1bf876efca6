// Contributions of calls, stages and causes to the change of the mean step.
import type { Contribution, Contributions as Payload } from "../../api/views";
import { change, number } from "../../base/quantities";
import { sentence, words } from "../../base/text";
import { LinkedTable } from "../../parts/linked_table";
import { rowKey } from "../../parts/row_key";
import { column, field } from "../../widgets/fields";
import { EmptyState } from "../../widgets/resource_view";
import { changeField } from "./change_fields";

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
      fields={[
        field("name"),
        field<Row>("part", { value: (row) => words(row.part) }),
        column<Row>("path", "below", "none", (row) => row.path.join(" > ")),
        field<Row>("status", { value: (row) => words(row.status) }),
        field("base_ns", { label: "from" }),
        field("other_ns", { label: "to" }),
        changeField<Row>(),
        field<Row>("base_busy_ns", { label: "busy time from" }),
        field<Row>("other_busy_ns", { label: "busy time to" }),
        column<Row>("calls", "calls", "none", (row) => (row.base_calls === null || row.other_calls === null ? null : `${number(row.base_calls)} to ${number(row.other_calls)}`)),
      ]}
    />
  );
}
