// Table of payload rows: sortable, filterable and virtualized.
import { Virtualizer, elementScroll, observeElementOffset, observeElementRect } from "@tanstack/virtual-core";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";

import { count, countOf } from "../base/quantities";
import { csv, save } from "../base/save";
import { shortName } from "../base/short_name";
import { printing } from "../base/theme";
import { cellText, drawCell, filterRows, sortRows, type Field, type Order } from "./fields";
import { Panel } from "./panel";
import { SortHeading } from "./sort_heading";

interface Props<Row> {
  title: string;
  rows: readonly Row[];
  fields: Field<Row>[];
  description?: string | null | undefined;
  definition?: string | null | undefined;
  /** Controlled order and filter, for state in the URL. */
  order?: Order | null;
  onOrder?: (order: Order) => void;
  filter?: string;
  onFilter?: (text: string) => void;
  /** Called on selection of a row; its first cell becomes a button. */
  onRow?: ((row: Row) => void) | undefined;
  selected?: Row | undefined;
  testid?: string | undefined;
  /** Show the filter for short tables as well. */
  searchable?: boolean | undefined;
  wide?: boolean | undefined;
  /** Room for the name and the first numbers alone; the rest is shown beside the table. */
  isNarrow?: boolean;
  tools?: ComponentChildren;
  /** Content above the rows. */
  introduction?: ComponentChildren;
  /** Heading above the rows for which it is the same; the table is not grouped without it. */
  groupOf?: ((row: Row) => string) | undefined;
  /** Take the height of the window. */
  isHigh?: boolean;
  /** Note on rows that the payload omits. */
  footnote?: string | null | undefined;
}

const ROW_PX = 33;
const MAX_HEIGHT_PX = 560;
/** Height of the window without the header and the tools. */
const HIGH = "max(20rem, calc(100vh - 18rem))";
const MAX_PRINTED_ROWS = 200;

export function DataTable<Row extends object>(props: Props<Row>) {
  const [localOrder, setLocalOrder] = useState<Order | null>(null);
  const [localFilter, setLocalFilter] = useState("");
  const order = props.order === undefined ? localOrder : props.order;
  const filter = props.filter ?? localFilter;
  const { rows, fields, groupOf } = props;
  const visibleRows = useMemo(
    () => sortRows(filterRows(rows, fields, filter), fields, order),
    [rows, fields, filter, order?.field, order?.descending],
  );
  const shownFields = useMemo(() => (props.isHigh === true ? fields : fields.filter((field) => hasValue(rows, field))), [rows, fields, props.isHigh]);
  const lines = useMemo(() => (groupOf === undefined ? visibleRows : groupRows(visibleRows, groupOf)), [visibleRows, groupOf]);
  const download = (): void => {
    const header = fields.map((column) => column.name);
    const cells = visibleRows.map((row) => fields.map((column) => column.value(row)));
    save(`${props.title}.csv`, new Blob([csv(header, cells)], { type: "text/csv" }));
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
          onInput={(event) => { (props.onFilter ?? setLocalFilter)(event.currentTarget.value); }}
        />
      ) : null}
    </>
  );
  return (
    <Panel title={props.title} description={props.description} definition={props.definition} onCsv={download} tools={tools} testid={props.testid} wide={props.wide ?? true}>
      {props.introduction}
      <Rows {...props} fields={shownFields} lines={lines} order={order} onOrder={props.onOrder ?? setLocalOrder} />
      <p class="muted counts">
        {visibleRows.length === rows.length ? "" : `${count(visibleRows.length)} of `}
        {countOf(rows.length, "row")}
        {printing.value && visibleRows.length > MAX_PRINTED_ROWS ? `; the first ${count(MAX_PRINTED_ROWS)} are printed` : ""}
        {props.footnote === null || props.footnote === undefined ? "" : `; ${props.footnote}`}
        {shownFields.length === fields.length ? "" : `; no value in any row: ${fields.filter((field) => !shownFields.includes(field)).map(({ title }) => title).join(", ")}`}
      </p>
    </Panel>
  );
}

/** Whether a column has anything to show; that of a table without rows, or drawn in its own way, may. */
export function hasValue<Row>(rows: readonly Row[], { value, draw, isHidden }: Field<Row>): boolean {
  return rows.length === 0 || draw !== undefined || isHidden === true || rows.some((row) => value(row) !== null);
}

/** Heading of a group of rows. */
class Group {
  constructor(readonly title: string, readonly count: number) {}
}

/** Rows by group, each below its heading; groups and rows keep their order. */
export function groupRows<Row extends object>(rows: readonly Row[], groupOf: (row: Row) => string): (Row | Group)[] {
  const groups = new Map<string, Row[]>();
  for (const row of rows) {
    const title = groupOf(row);
    const members = groups.get(title);
    if (members === undefined) groups.set(title, [row]);
    else members.push(row);
  }
  return [...groups].flatMap(([title, members]) => [new Group(title, members.length), ...members]);
}

interface RowsProps<Row> extends Props<Row> {
  lines: readonly (Row | Group)[];
  onOrder: (order: Order) => void;
}

function Rows<Row extends object>(props: RowsProps<Row>) {
  const { title: caption, lines, order, onOrder, onRow, selected, isHigh } = props;
  const fields = arrange(props.fields.filter(({ isHidden }) => isHidden !== true), props.isNarrow === true);
  const isWhole = fields.some(({ wraps }) => wraps === true);
  const nameColumn = Math.max(0, fields.findIndex((column) => column.isLongName === true));
  const container = useRef<HTMLDivElement>(null);
  const { items, total } = useVirtualRows(container, lines.length, isWhole);
  const before = items[0]?.start ?? 0;
  const after = total - (items[items.length - 1]?.end ?? 0);
  return (
    <div
      class="rows"
      ref={container}
      role="region"
      aria-label={`Rows of ${caption}`}
      tabIndex={0}
      style={isWhole ? undefined : { maxHeight: isHigh === true ? HIGH : `${MAX_HEIGHT_PX}px` }}
    >
      <table aria-rowcount={lines.length + 1}>
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            {fields.map((column) => (
              <SortHeading
                key={column.name}
                descending={order?.field === column.name ? order.descending : null}
                numeric={column.numeric}
                description={column.description}
                onSort={(descending) => { onOrder({ field: column.name, descending }); }}
              >
                {column.title}
              </SortHeading>
            ))}
          </tr>
        </thead>
        <tbody>
          {before > 0 ? <tr aria-hidden="true" style={{ height: `${before}px` }} /> : null}
          {items.map(({ index }) => {
            const row = lines[index];
            if (row === undefined) return null;
            if (row instanceof Group) {
              return (
                <tr key={index} aria-rowindex={index + 2} class="group">
                  <th scope="rowgroup" colSpan={fields.length}>{row.title} <span class="muted">{count(row.count)}</span></th>
                </tr>
              );
            }
            return (
              <tr
                key={index}
                aria-rowindex={index + 2}
                aria-current={row === selected ? "true" : undefined}
                class={`${onRow === undefined ? "" : "selectable"} ${row === selected ? "selected" : ""}`}
                onClick={onRow === undefined ? undefined : () => { onRow(row); }}
              >
                {fields.map((column, columnIndex) => (
                  <td key={column.name} class={column.isLongName === true ? "long-name" : column.wraps === true ? "wraps" : column.numeric ? "number" : ""}>
                    {onRow !== undefined && columnIndex === nameColumn ? (
                      <RowButton text={cellText(row, column)} isLong={column.isLongName === true} depth={order === null ? (column.indent?.(row) ?? 0) : 0} />
                    ) : (
                      <Cell row={row} column={column} />
                    )}
                  </td>
                ))}
              </tr>
            );
          })}
          {after > 0 ? <tr aria-hidden="true" style={{ height: `${after}px` }} /> : null}
        </tbody>
        {items.length === lines.length ? null : <LongestTexts lines={lines} fields={fields} />}
      </table>
    </div>
  );
}

const MAX_NARROW_FIELDS = 6;

/** Windows of this width show two or three columns at once, of which the name has to be one. */
const PHONE = "(max-width: 600px)";

/** Put long names last, on a phone first; leave out the last of the other columns where there is no room for them. */
function arrange<Row>(fields: Field<Row>[], isNarrow: boolean): Field<Row>[] {
  const [names, values] = [fields.filter((field) => field.isLongName === true), fields.filter((field) => field.isLongName !== true)];
  if (window.matchMedia(PHONE).matches) {
    const [first, texts] = [values.slice(0, 1), values.slice(1).filter(({ wraps }) => wraps === true)];
    return [...names, ...new Set([...first, ...texts, ...values])];
  }
  return [...(isNarrow && names.length > 0 ? values.slice(0, MAX_NARROW_FIELDS) : values), ...names];
}

/** Hidden row with the longest text of each column, whose width scrolling does not change then. */
function LongestTexts<Row extends object>({ lines, fields }: { lines: readonly (Row | Group)[]; fields: Field<Row>[] }) {
  const longest = useMemo(() => {
    const rows = lines.filter((line): line is Row => !(line instanceof Group));
    return fields.map((column) => longestText(rows, column));
  }, [lines, fields.map(({ name }) => name).join()]);
  return (
    <tfoot aria-hidden="true">
      <tr>
        {fields.map((column, index) => {
          const row = longest[index];
          return <td key={column.name}>{row === undefined ? null : <Cell row={row} column={column} />}</td>;
        })}
      </tr>
    </tfoot>
  );
}

/** Return the row with the longest text of a column; undefined for numbers and long names. */
function longestText<Row>(rows: readonly Row[], { value, numeric, isLongName }: Field<Row>): Row | undefined {
  if (numeric || isLongName === true) return undefined;
  let [longest, length]: [Row | undefined, number] = [undefined, 0];
  for (const row of rows) {
    const text = value(row);
    if (typeof text === "string" && text.length > length) [longest, length] = [row, text.length];
  }
  return longest;
}

/** Upper bound of characters in a cell: a row is one line high. */
const MAX_TEXT_LENGTH = 400;

function Cell<Row extends object>({ row, column }: { row: Row; column: Field<Row> }) {
  const drawing = column.draw?.(row);
  if (drawing !== undefined && drawing !== null) return <>{drawing}</>;
  const value = column.value(row);
  return typeof value === "string" ? (
    <span class="name" title={value.slice(0, 4 * MAX_TEXT_LENGTH)}>{column.isLongName === true ? <NameText text={value} isLong /> : value.slice(0, MAX_TEXT_LENGTH)}</span>
  ) : (
    <>{drawCell(row, column)}</>
  );
}

/** Characters at the end of a long name that are always shown: names of one kind differ there. */
const TAIL_LENGTH = 19;

/** Short name; a long one loses its middle where there is no room for it. */
function NameText({ text, isLong }: { text: string; isLong: boolean }) {
  const name = shortName(text).slice(0, MAX_TEXT_LENGTH);
  if (!isLong || name.length < 2 * TAIL_LENGTH) return <>{name}</>;
  return <span class="middle"><span>{name.slice(0, -TAIL_LENGTH)}</span><span>{name.slice(-TAIL_LENGTH)}</span></span>;
}

/** Button that makes a row reachable by keyboard; the row handles its click. */
function RowButton({ text, isLong, depth }: { text: string; isLong: boolean; depth: number }) {
  return (
    <button type="button" class="row-button" title={text.slice(0, 4 * MAX_TEXT_LENGTH)} style={{ marginLeft: `${1.1 * depth}rem` }}>
      <NameText text={text} isLong={isLong} />
    </button>
  );
}

function useVirtualRows(container: { current: HTMLDivElement | null }, count: number, isWhole: boolean) {
  const [, redraw] = useReducer((redrawCount: number) => redrawCount + 1, 0);
  const [rows] = useState(
    () =>
      new Virtualizer<HTMLDivElement, HTMLTableRowElement>({
        count,
        getScrollElement: () => container.current,
        estimateSize: () => ROW_PX,
        overscan: 12,
        initialRect: { width: 800, height: MAX_HEIGHT_PX },
        observeElementRect,
        observeElementOffset,
        scrollToFn: elementScroll,
        onChange: () => { redraw(undefined); },
      }),
  );
  rows.setOptions({ ...rows.options, count });
  useEffect(() => rows._didMount(), [rows]);
  useLayoutEffect(() => {
    rows._willUpdate();
  });
  return isWhole || printing.value // a printed page does not scroll
    ? { items: Array.from({ length: Math.min(count, MAX_PRINTED_ROWS) }, (_, index) => ({ index, start: 0, end: 0 })), total: 0 }
    : { items: rows.getVirtualItems(), total: rows.getTotalSize() };
}
