// A figure as a part of a screen, to take away as numbers or as a picture.
import type { ComponentChildren } from "preact";

import { csv, save } from "../base/save";
import { Panel } from "../widgets/panel";
import { picture } from "./chart";
import { drawing, Drawn, type Figure } from "./figure";
import { figureTable } from "./figure_table";

interface Props {
  block: Figure;
  about?: string | null | undefined;
  tools?: ComponentChildren;
  wide?: boolean;
  testid?: string;
  onRange?: ((from: number, to: number) => void) | undefined;
}

export function FigurePanel({ block, about, tools, wide = false, testid, onRange }: Props) {
  const { title } = block;
  return (
    <Panel
      title={title}
      about={about}
      tools={tools}
      wide={wide}
      testid={testid}
      onCsv={() => {
        const { columns, rows } = figureTable(block);
        const header = columns.map(({ label, unit }) => (unit === "" ? label : `${label} [${unit}]`));
        save(`${title}.csv`, new Blob([csv(header, rows)], { type: "text/csv" }));
      }}
      onPng={() => {
        const { option, height } = drawing(block);
        void picture(option, height).then((blob) => {
          if (blob !== null) save(`${title}.png`, blob);
        });
      }}
    >
      <Drawn block={block} lazy onRange={onRange} />
    </Panel>
  );
}
