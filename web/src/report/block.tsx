// One block of a section of the report: text, table, rule or figure.
import type { Section } from "../api/report";
import { FigureView } from "../charts/figure";
import { figureOf } from "../charts/from_blocks";
import { useDefinition } from "../widgets/definition";
import { Prose } from "../widgets/prose";
import { Table } from "../widgets/table";
import { CheckView } from "./check";

type Block = Section["blocks"][number];
type TableBlock = Extract<Block, { kind: "table" }>;

export function BlockView({ block }: { block: Block }) {
  switch (block.kind) {
    case "text":
      return (
        <p class={`text ${block.tone}`}>
          {block.tone === "missing" ? <><b>Not available.</b> </> : null}
          <Prose text={block.text} />
        </p>
      );
    case "listing":
      return (
        <ul class="text">
          {block.items.map((item) => <li key={item}><Prose text={item} /></li>)}
        </ul>
      );
    case "check":
      return <CheckView check={block} />;
    case "table":
      return <TableView block={block} />;
    case "curves":
    case "bar_chart":
    case "matrix":
      return <FigureView block={figureOf(block)} />;
    default:
      return <FigureView block={block} />;
  }
}

function TableView({ block }: { block: TableBlock }) {
  const [definitionButton, definitionText] = useDefinition(block.title, block.share_of === null ? null : `Shares are of ${block.share_of}.`);
  return (
    <div class={block.columns.length === 2 ? "table narrow" : "table"}>
      <div class="caption">{block.title}{definitionButton}</div>
      {definitionText}
      <Table caption={block.title} columns={block.columns} rows={block.rows} />
      {block.more === null ? null : <p class="muted">… {block.more}.</p>}
    </div>
  );
}
