// Machines: utilization over time and hardware.
import type { SystemHeatView } from "../api/views";
import { useSelect } from "../parts/url_controls";
import { useView } from "../state/fetch";
import { PageHeader } from "../widgets/page_header";
import { ResourceView, EmptyState } from "../widgets/resource_view";
import { HeatMap } from "./system/heat_map";
import { Machine, Metrics } from "./system/metrics";
import { MetricsOverTime } from "./system/time_series";

export default function System() {
  // The node names come with the fastest of the views.
  return <ResourceView resource={useView("system-heat")}>{(payload) => <Content payload={payload} />}</ResourceView>;
}

function Content({ payload }: { payload: SystemHeatView }) {
  const names = [...payload.nodes.map((nodeHeat) => nodeHeat.node), ...payload.left_out_nodes];
  const [node, nodeSelect] = useSelect("node", "Node", names);
  const system = useView("system"); // on long runs it takes a while to load
  return (
    <>
      <PageHeader title="System">{nodeSelect}</PageHeader>
      {node === "" ? (
        <EmptyState text={payload.missing ?? "no node has samples"} />
      ) : (
        <>
          <ResourceView resource={system}>{(machines) => <Machine payload={machines} node={node} />}</ResourceView>
          <HeatMap key={`heat ${node}`} node={node} initial={payload} />
          <MetricsOverTime key={`over ${node}`} node={node} />
          {system.data === null ? null : <Metrics key={`metrics ${node}`} payload={system.data} node={node} />}
        </>
      )}
    </>
  );
}
