// Figure in a panel, with download as CSV or PNG.
import type { ComponentChildren } from "preact";

import { csv, save } from "../base/save";
import { Panel } from "../widgets/panel";
import { renderPng, type PointHandler } from "./chart";
import { describeFigure, FigureBody, type Figure } from "./figure";
import { figureTable } from "./figure_table";

interface Props {
  block: Figure;
  description?: string | null | undefined;
  definition?: string | null | undefined;
  tools?: ComponentChildren;
  wide?: boolean;
  testid?: string;
  onRange?: ((from: number, to: number) => void) | undefined;
  onPoint?: PointHandler | undefined;
}

export function FigurePanel({ block, description, definition, tools, wide = false, testid, onRange, onPoint }: Props) {
  const { title } = block;
  return (
    <Panel
      title={title}
      description={description}
      definition={definition}
      tools={tools}
      wide={wide}
      testid={testid}
      onCsv={() => {
        const { columns, rows } = figureTable(block);
        const header = columns.map(({ label, unit }) => (unit === "" ? label : `${label} [${unit}]`));
        save(`${title}.csv`, new Blob([csv(header, rows)], { type: "text/csv" }));
      }}
      onPng={() => {
        const { option, height } = describeFigure(block);
        void renderPng(option, height).then((blob) => {
          if (blob !== null) save(`${title}.png`, blob);
        });
      }}
    >
      <FigureBody block={block} lazy onRange={onRange} onPoint={onPoint} />
    </Panel>
  );
}
