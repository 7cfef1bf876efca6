// The machines: what they did over time, and what they are.
import { useOption } from "../parts/options";
import { useView } from "../state/fetch";
import { Answer, Empty } from "../widgets/answer";
import { Choice } from "../widgets/choice";
import { Head } from "../widgets/head";
import type { SystemHeatView } from "../api/views";
import { HeatMap } from "./system/heat_map";
import { Metrics } from "./system/metrics";
import { OverTime } from "./system/over_time";

export default function System() {
  // Names come with the quickest of the views.
  const answer = useView("system-heat");
  return (
    <Answer of={answer}>{(payload) => <Content payload={payload} />}</Answer>
  );
}

function Content({ payload }: { payload: SystemHeatView }) {
  const names = [...payload.nodes.map((each) => each.node), ...payload.left_out_nodes];
  const [node, choose] = useOption("node", names.length === 0 ? [""] : names);
  return (
    <>
      <Head title="System">
        {names.length < 2 ? null : (
          <Choice label="Node" value={node} choices={names.map((each) => [each, each] as const)} onChoose={choose} />
        )}
      </Head>
      {node === "" ? (
        <Empty text={payload.missing ?? "no node was sampled"} />
      ) : (
        <>
          <HeatMap key={`heat ${node}`} node={node} known={payload} />
          <OverTime key={`over ${node}`} node={node} />
          <Metrics key={`metrics ${node}`} node={node} />
        </>
      )}
    </>
  );
}
