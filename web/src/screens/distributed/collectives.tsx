// Collectives by name and group: size, bandwidth and waiting time.
import type { Collective, RankWindow } from "../../api/views";
import { LinkedTable } from "../../parts/linked_table";
import { rowKey } from "../../parts/row_key";
import { useOption } from "../../parts/url_options";
import { bar, field } from "../../widgets/fields";
import { Select } from "../../widgets/select";

export function Collectives({ window, bandwidthOf }: { window: RankWindow; bandwidthOf: string }) {
  const ranks = [...new Set(window.rank_collectives.map((row) => row.rank))];
  const [selected, setSelected] = useOption("of", ["all", ...ranks.map(String)]);
  const rows = selected === "all" ? window.collectives : window.rank_collectives.filter((row) => String(row.rank) === selected);
  if (window.collectives.length === 0) return null;
  return (
    <LinkedTable
      id="collectives"
      title="Collectives"
      testid="table-collectives"
      description={bandwidthOf}
      rows={rows}
      keyOf={(row) => rowKey(row.name, row.group, row.dtype)}
      tools={
        ranks.length < 2 ? null : (
          <Select
            label="Of"
            value={selected}
            choices={[["all", "all ranks"] as const, ...ranks.map((rank) => [String(rank), rank === null ? "unknown rank" : `rank ${rank}`] as const)]}
            onChange={setSelected}
          />
        )
      }
      fields={[
        field<Collective>("name", { label: "collective" }),
        field<Collective>("group", { value: (row) => row.group_description ?? row.group }),
        field<Collective>("group_size", { label: "ranks", unit: "count" }),
        field<Collective>("dtype", { label: "type" }),
        field<Collective>("call_count", { label: "calls" }),
        field<Collective>("total_ns"),
        bar<Collective>("share_ratio", "share"),
        field<Collective>("mean_ns"),
        field<Collective>("matched_count", { label: "matched" }),
        field<Collective>("transfer_ns"),
        field<Collective>("waiting_ns"),
        field<Collective>("moved_bytes", { label: "moved" }),
        field<Collective>("mean_bytes", { label: "mean size" }),
        field<Collective>("algorithm_bytes_per_s", { label: "algorithm bandwidth" }),
        field<Collective>("bus_bytes_per_s", { label: "bus bandwidth" }),
      ]}
    />
  );
}
