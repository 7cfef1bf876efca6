// Collectives by name and group: size, bandwidth and waiting time.
import type { RankWindow } from "../../api/views";
import { sentence } from "../../base/text";
import { LinkedTable } from "../../parts/linked_table";
import { rowKey } from "../../parts/row_key";
import { useSelect } from "../../parts/url_controls";
import { Fold } from "../../widgets/fold";
import { columns, type Field } from "../../widgets/fields";

interface Props {
  window: RankWindow;
  communicationOf: string;
  bandwidthOf: string;
}

export function Collectives({ window, communicationOf, bandwidthOf }: Props) {
  const ranks = [...new Set(window.rank_collectives.map((row) => row.rank))];
  const [selected, rankSelect] = useSelect("of", "Of", [
    ["all", "all ranks"],
    ...ranks.map((rank) => [String(rank), rank === null ? "unknown rank" : `rank ${rank}`] as const),
  ]);
  const rows = selected === "all" ? window.collectives : window.rank_collectives.filter((row) => String(row.rank) === selected);
  const isPartlyMatched = rows.some((row) => row.matched_count > 0 && row.matched_count < row.call_count);
  if (window.collectives.length === 0) return null;
  return (
    <>
      <LinkedTable
        id="collectives"
        title="Collectives"
        testid="table-collectives"
        definition={`${communicationOf} ${sentence(bandwidthOf)}`}
        rows={rows}
        keyOf={(row) => rowKey(row.name, row.group, row.dtype)}
        tools={ranks.length < 2 ? null : rankSelect}
        fields={withValues(rows, columns<"Collective">(
          "Collective", "name", ["group", { value: (row) => row.group_description ?? row.group }], "group_size", "dtype", "call_count",
          "total_ns", "share_ratio", "mean_ns", ...(isPartlyMatched ? ["matched_count" as const] : []), "transfer_ns", "waiting_ns",
          "moved_bytes", "algorithm_bytes_per_s", "bus_bytes_per_s",
        ))}
      />
      <Fold title="Collectives by size" about="bandwidth of small and large messages">
        <LinkedTable
          id="sizes"
          title="Collectives by size"
          testid="table-collective-sizes"
          definition={bandwidthOf}
          rows={window.collective_sizes}
          keyOf={(row) => rowKey(row.name, row.reach, String(row.group_size), String(row.from_bytes))}
          fields={withValues(window.collective_sizes, columns<"CollectiveSize">(
            "CollectiveSize", "name", "reach", "group_size", "from_bytes", "to_bytes", "call_count", "total_ns", "share_ratio",
            "mean_ns", "transfer_ns", "waiting_ns", "moved_bytes", "algorithm_bytes_per_s", "bus_bytes_per_s",
          ))}
        />
      </Fold>
    </>
  );
}

/** Columns that have a value in any row. */
function withValues<Row>(rows: readonly Row[], fields: Field<Row>[]): Field<Row>[] {
  return fields.filter(({ value }) => rows.some((row) => value(row) !== null));
}
