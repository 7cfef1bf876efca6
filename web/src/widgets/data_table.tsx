// A table of payload rows: sorted, filtered, and drawn only where it is seen.
import { Virtualizer, elementScroll, observeElementOffset, observeElementRect } from "@tanstack/virtual-core";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";

import { count, countOf } from "../base/quantities";
import { csv, save } from "../base/save";
import { printing } from "../base/theme";
import { filtered, ordered, shownValue, type Field, type Order, type Value } from "./fields";
import { OrderHeading } from "./ordering";
import { Panel } from "./panel";

interface Props<Row> {
  title: string;
  rows: readonly Row[];
  fields: Field<Row>[];
  about?: string | null | undefined;
  /** Where order and filter live, when they shall be in the address. */
  order?: Order | null;
  onOrder?: (order: Order) => void;
  filter?: string;
  onFilter?: (text: string) => void;
  /** What a row leads to; its first cell is the button for that. */
  onRow?: ((row: Row) => void) | undefined;
  selected?: Row | undefined;
  testid?: string | undefined;
  /** Has a filter even with few rows. */
  searchable?: boolean | undefined;
  wide?: boolean | undefined;
  tools?: ComponentChildren;
  /** Rows that the payload left out, said below. */
  more?: string | null | undefined;
}

const ROW_PX = 33;
const MOST_PX = 560;
const MOST_PRINTED = 200;

export function DataTable<Row extends object>(props: Props<Row>) {
  const [ownOrder, setOwnOrder] = useState<Order | null>(null);
  const [ownFilter, setOwnFilter] = useState("");
  const order = props.order === undefined ? ownOrder : props.order;
  const filter = props.filter ?? ownFilter;
  const { rows, fields } = props;
  const shown = useMemo(
    () => ordered(filtered(rows, fields, filter), fields, order),
    [rows, fields, filter, order?.field, order?.descending],
  );
  const download = (): void => {
    const header = fields.map((each) => each.name);
    const lines = shown.map((row) => fields.map((each) => each.value(row)));
    save(`${props.title}.csv`, new Blob([csv(header, lines)], { type: "text/csv" }));
  };
  const tools = (
    <>
      {props.tools}
      {props.searchable === true || rows.length > 8 || filter !== "" ? (
        <input
          type="search"
          class="filter"
          placeholder="Filter"
          aria-label={`Filter ${props.title}`}
          value={filter}
          onInput={(event) => { (props.onFilter ?? setOwnFilter)(event.currentTarget.value); }}
        />
      ) : null}
    </>
  );
  return (
    <Panel title={props.title} about={props.about} onCsv={download} tools={tools} testid={props.testid} wide={props.wide ?? true}>
      <Rows {...props} shown={shown} order={order} choose={props.onOrder ?? setOwnOrder} />
      <p class="muted counts">
        {shown.length === rows.length ? "" : `${count(shown.length)} of `}
        {countOf(rows.length, "row")}
        {printing.value && shown.length > MOST_PRINTED ? `; the first ${count(MOST_PRINTED)} are printed` : ""}
        {props.more === null || props.more === undefined ? "" : `; ${props.more}`}
      </p>
    </Panel>
  );
}

interface RowsProps<Row> extends Props<Row> {
  shown: Row[];
  choose: (order: Order) => void;
}

function Rows<Row extends object>(props: RowsProps<Row>) {
  const { title: caption, fields, shown, order, choose, onRow, selected } = props;
  const place = useRef<HTMLDivElement>(null);
  const { items, total } = useVisible(place, shown.length);
  const before = items[0]?.start ?? 0;
  const after = total - (items[items.length - 1]?.end ?? 0);
  return (
    <div
      class="rows"
      ref={place}
      role="region"
      aria-label={`Rows of ${caption}`}
      tabIndex={0}
      style={{ maxHeight: `${MOST_PX}px` }}
    >
      <table aria-rowcount={shown.length + 1}>
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            {fields.map((each) => (
              <OrderHeading
                key={each.name}
                descending={order?.field === each.name ? order.descending : null}
                numeric={each.numeric}
                about={each.about}
                onOrder={(descending) => { choose({ field: each.name, descending }); }}
              >
                {each.label}
              </OrderHeading>
            ))}
          </tr>
        </thead>
        <tbody>
          {before > 0 ? <tr aria-hidden="true" style={{ height: `${before}px` }} /> : null}
          {items.map(({ index }) => {
            const row = shown[index];
            if (row === undefined) return null;
            return (
              <tr
                key={index}
                aria-rowindex={index + 2}
                aria-current={row === selected ? "true" : undefined}
                class={`${onRow === undefined ? "" : "choosable"} ${row === selected ? "selected" : ""}`}
                onClick={onRow === undefined ? undefined : () => { onRow(row); }}
              >
                {fields.map((each, place) => (
                  <td key={each.name} class={each.numeric ? "number" : ""}>
                    {onRow !== undefined && place === 0 ? (
                      <Opens text={shownValue(each.value(row), each.unit)} depth={order === null ? (each.indent?.(row) ?? 0) : 0} />
                    ) : (
                      each.draw?.(row) ?? <Text value={each.value(row)} unit={each.unit} />
                    )}
                  </td>
                ))}
              </tr>
            );
          })}
          {after > 0 ? <tr aria-hidden="true" style={{ height: `${after}px` }} /> : null}
        </tbody>
      </table>
    </div>
  );
}

/** Longer names are cut: a row is one line high. */
const LONGEST = 400;

function Text({ value, unit }: { value: Value; unit: string }) {
  const text = shownValue(value, unit);
  return typeof value === "string" ? (
    <span class="name" title={text.slice(0, 4 * LONGEST)}>{text.slice(0, LONGEST)}</span>
  ) : (
    <>{text}</>
  );
}

/** The way to a row from the keyboard; its click is the row's. */
function Opens({ text, depth }: { text: string; depth: number }) {
  return (
    <button type="button" class="opens" title={text.slice(0, 4 * LONGEST)} style={{ marginLeft: `${1.1 * depth}rem` }}>
      {text.slice(0, LONGEST)}
    </button>
  );
}

function useVisible(place: { current: HTMLDivElement | null }, count: number) {
  const [, redraw] = useReducer((drawn: number) => drawn + 1, 0);
  const [rows] = useState(
    () =>
      new Virtualizer<HTMLDivElement, HTMLTableRowElement>({
        count,
        getScrollElement: () => place.current,
        estimateSize: () => ROW_PX,
        overscan: 12,
        initialRect: { width: 800, height: MOST_PX },
        observeElementRect,
        observeElementOffset,
        scrollToFn: elementScroll,
        onChange: () => { redraw(undefined); },
      }),
  );
  const printed = printing.value; // a page that is printed is not scrolled
  rows.setOptions({ ...rows.options, count });
  useEffect(() => rows._didMount(), [rows]);
  useLayoutEffect(() => {
    rows._willUpdate();
  });
  return printed
    ? { items: Array.from({ length: Math.min(count, MOST_PRINTED) }, (_, index) => ({ index, start: 0, end: 0 })), total: 0 }
    : { items: rows.getVirtualItems(), total: rows.getTotalSize() };
}
