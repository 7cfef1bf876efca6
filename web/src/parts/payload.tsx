// Any payload, drawn by the shapes of its values and the descriptions of its fields.
//
//   scalars                          tiles, or a panel if they are part of another object
//   a list of objects of scalars     a table
//   a list of other objects          a section each, or a table that opens one
//   a list of numbers                a curve
//   missing, notes, quality, range, damage, …   sentences
import type { ComponentChildren } from "preact";

import type { FieldLabel } from "../api/labels";
import type { Json, JsonObject, Structure } from "../state/schema";
import type { QualityNote, TimeRange } from "../api/views";
import { MISSING } from "../base/quantities";
import { capitalize } from "../base/text";
import { FigurePanel } from "../charts/figure_panel";
import type { Plot } from "../charts/plot";
import { formatValue, labelled, type Field, type Value } from "../widgets/fields";
import { KeyValues } from "../widgets/key_values";
import { Panel } from "../widgets/panel";
import { EmptyState, QualityNotes } from "../widgets/resource_view";
import { Tiles } from "../widgets/tiles";
import { LinkedTable } from "./linked_table";

/** Fields that identify the subject of an object. */
const IDENTITY = ["rank", "trace", "process", "node", "device", "device_name", "stream", "name"];
/** Fields that are sentences about the others, if they have the usual shape. */
const SENTENCES: Record<string, (value: Json) => boolean> = {
  headline: isText,
  missing: isText,
  share_of: isText,
  notes: (value) => Array.isArray(value) && value.every(isText),
  quality: (value) => Array.isArray(value) && value.every((note) => isObject(note) && isText(note.sentence)),
  damage: (value) => Array.isArray(value) && value.every(isText),
  recording_end: isText,
  rounding: isText,
  doubts: (value) => Array.isArray(value) && value.every(isText),
  range: (value) => isObject(value) && isText(value.range_of) && Array.isArray(value.notes),
};
/** Longer lists of numbers are curves. */
const MAX_LISTED = 8;
/** Longer lists of objects are tables. */
const MAX_SECTIONS = 8;
const MAX_TEXT_LENGTH = 2000;
/** Longer tables have rows of one line. */
const MAX_WRAPPED = 60;
/** Longer texts do not fit into a tile. */
const MAX_TILE_LENGTH = 32;

interface Props {
  value: JsonObject;
  type: Structure;
  /** Prefix of URL parameters and test ids. */
  id?: string;
  /** Unit of numbers that declare none. */
  unit?: string;
  /** Fields that are shown elsewhere. */
  omitted?: readonly string[];
}

export function PayloadView({ value, type, id, unit, omitted = [] }: Props) {
  const names = Object.keys(value).filter((name) => !isSentence(name, value[name]) && !omitted.includes(name));
  const ownUnit = unitOfValues(value, unit);
  // Counts of what is missing are zeros.
  const scalars = names.filter((name) => isScalar(value[name]) && !(isText(value.missing) && value[name] === 0)).map((name) => {
    const label = type.label(name, ownUnit);
    return { ...label, name, text: textOf(value[name], label) };
  });
  const tiles = scalars.filter(({ text }) => text.length <= MAX_TILE_LENGTH);
  const texts = scalars.filter(({ text }) => text.length > MAX_TILE_LENGTH);
  const curves = names.filter((name) => isCurve(value[name]));
  return (
    <>
      <Sentences value={value} />
      {tiles.length === 0 ? null : (
        <Tiles tiles={tiles.map(({ name, title, text, description }) => ({ label: capitalize(title), value: text, caption: description, testid: name }))} />
      )}
      {texts.length === 0 ? null : (
        <Panel title="Details"><KeyValues entries={texts.map(({ title, text, description }) => [capitalize(title), text, description])} /></Panel>
      )}
      {curves.length === 0 ? null : (
        <div class="panels">
          {curves.map((name) => <FigurePanel key={name} testid={`curve-${name}`} block={curve(name, value, type, ownUnit)} description={type.label(name).description} />)}
        </div>
      )}
      {names.filter((name) => !isScalar(value[name]) && !curves.includes(name)).map((name) => (
        <Part
          key={name}
          id={id === undefined ? name : `${id}-${name}`}
          title={capitalize(type.label(name).title)}
          description={type.label(name).description}
          value={value[name] as JsonObject | JsonObject[]}
          type={type.child(name)}
          unit={type.label(name, ownUnit).unit}
        />
      ))}
    </>
  );
}

/** Sentences about the fields of an object: missing data first. */
function Sentences({ value }: { value: JsonObject }) {
  const sentenceOf = (name: string): Json => (isSentence(name, value[name]) ? (value[name] ?? null) : null);
  const [headline, missing, shareOf] = [sentenceOf("headline"), sentenceOf("missing"), sentenceOf("share_of")];
  return (
    <>
      {isText(headline) ? <h2 class="answer">{headline}</h2> : null}
      {isText(missing) ? <EmptyState text={missing} /> : null}
      <QualityNotes
        notes={(sentenceOf("notes") ?? []) as string[]}
        quality={(sentenceOf("quality") ?? []) as unknown as QualityNote[]}
        range={sentenceOf("range") as unknown as TimeRange | null}
      />
      {isText(shareOf) && shareOf !== "" ? <p class="muted">Shares are of {shareOf}.</p> : null}
    </>
  );
}

interface PartProps {
  id: string;
  title: string;
  description: string | undefined;
  type: Structure;
  unit: string;
}

/** An object, a map or a list of objects below its title. */
function Part({ value, ...part }: PartProps & { value: JsonObject | JsonObject[] }) {
  const { id, title, description, type, unit } = part;
  if (Array.isArray(value)) return value.length === 0 ? null : <Objects {...part} rows={value.filter(isObject)} />;
  const members = Object.entries(value);
  if (members.length === 0) return null;
  if (type.isMap && members.every(([, member]) => isObject(member))) {
    return <Objects {...part} rows={members.map(([name, member]) => ({ name, ...(member as JsonObject) }))} />;
  }
  if (!isFlat(value)) return <Section title={title}><PayloadView id={id} value={value} type={type} unit={unit} /></Section>;
  const ownUnit = unitOfValues(value, unit);
  return (
    <Panel title={title} description={description} testid={`panel-${id}`}>
      <KeyValues
        entries={members.map(([name, member]) => {
          const label = type.isMap ? { title: name, unit } : type.label(name, ownUnit);
          return [label.title, textOf(member, label), label.description] as const;
        })}
      />
    </Panel>
  );
}

function Objects({ rows, ...part }: PartProps & { rows: JsonObject[] }) {
  const { id, type, unit } = part;
  if (rows.every(isFlat)) return <ObjectTable {...part} rows={rows} />;
  const detail = (row: JsonObject, index: number) => (
    <Section key={index} title={identityOf(row, type) ?? `${part.title} ${index + 1}`}>
      <PayloadView id={`${id}-${index}`} value={row} type={type} unit={unit} omitted={IDENTITY} />
    </Section>
  );
  if (rows.length <= MAX_SECTIONS) return <>{rows.map(detail)}</>;
  const indices = new Map(rows.map((row, index) => [row, index]));
  const indexOf = (row: JsonObject): number => indices.get(row) ?? 0;
  return <ObjectTable {...part} rows={rows} keyOf={(row) => String(indexOf(row))} renderSelected={(row) => detail(row, indexOf(row))} />;
}

interface TableProps extends PartProps {
  rows: JsonObject[];
  keyOf?: (row: JsonObject) => string;
  renderSelected?: (row: JsonObject) => ComponentChildren;
}

function ObjectTable({ id, title, description, rows, type, unit, keyOf, renderSelected }: TableProps) {
  return (
    <LinkedTable
      id={id}
      title={title}
      testid={`table-${id}`}
      description={description}
      rows={rows}
      fields={columnsOf(rows, type, unit)}
      keyOf={keyOf}
      renderSelected={renderSelected}
    />
  );
}

function Section({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section aria-label={title}>
      <h2 class="section-title">{title}</h2>
      {children}
    </section>
  );
}

/** Columns of the fields that fit into a cell. */
export function columnsOf(rows: readonly JsonObject[], type: Structure, unit: string): Field<JsonObject>[] {
  const allNames = new Set(rows.flatMap((row) => Object.keys(row)));
  const names = [...allNames].filter((name) => rows.some((row) => fitsCell(name, row[name])));
  return names.map((name) => {
    const label = type.label(name, rows.some((row) => typeof row.unit === "string") ? "inherited" : unit);
    const hasNumbers = rows.some((row) => typeof row[name] === "number");
    return labelled<JsonObject>(name, label, {
      wraps: (name === "sentence" || name === "reason") && rows.length <= MAX_WRAPPED,
      numeric: (hasNumbers || label.unit !== "none") && label.display !== "identifier",
      value: (row) => cellOf(row[name], label),
    });
  });
}

/** Numbers over the time in a list of the same object, over the buckets of a curve, or over their positions. */
export function curve(name: string, value: JsonObject, type: Structure, unit: string): Plot {
  const y = value[name] as (number | null)[];
  const { title, unit: fieldUnit } = type.label(name, unit);
  const times = Object.keys(value).find((candidate) => candidate !== name && candidate.endsWith("after_ns") && isCurve(value[candidate]));
  const bucket = typeof value.bucket_ns === "number" ? value.bucket_ns : null;
  return {
    kind: "plot",
    title: capitalize(title),
    x: times === undefined ? { name: bucket === null ? "position" : "time", unit: bucket === null ? "count" : "ns" } : { name: type.label(times).title, unit: "ns" },
    y: { name: title, unit: fieldUnit },
    series: [{ name: title, x: times === undefined ? y.map((_, index) => index * (bucket ?? 1)) : (value[times] as number[]), y }],
  };
}

/** Rows that name the unit of their numbers, as metrics do. */
function unitOfValues(value: JsonObject, inherited: string | undefined): string {
  return typeof value.unit === "string" ? value.unit : (inherited ?? "none");
}

function identityOf(value: JsonObject, type: Structure): string | null {
  const parts = IDENTITY.flatMap((name) => {
    const part = value[name];
    if (typeof part === "number") return [`${type.label(name).title} ${part}`];
    return isText(part) ? [part.slice(0, MAX_TEXT_LENGTH)] : [];
  });
  return parts.length === 0 ? null : parts.join(" · ");
}

function isText(value: Json | undefined): value is string {
  return typeof value === "string";
}

function isSentence(name: string, value: Json | undefined): boolean {
  return value === null ? name in SENTENCES : value !== undefined && SENTENCES[name]?.(value) === true;
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A value that is written in one line. */
function isScalar(value: Json | undefined): boolean {
  if (!Array.isArray(value)) return !isObject(value);
  return value.length > 0 && !isCurve(value) && !value.some(isObject);
}

function isCurve(value: Json | undefined): boolean {
  return Array.isArray(value) && value.length > MAX_LISTED && value.every((item) => item === null || typeof item === "number");
}

/** An object whose fields fit into cells. */
function isFlat(value: JsonObject): boolean {
  return Object.entries(value).every(([name, member]) => isSentence(name, member) || isScalar(member) || (Array.isArray(member) && member.length === 0));
}

/** Sentences get a column where a row has one. */
function fitsCell(name: string, value: Json | undefined): boolean {
  return isSentence(name, value) ? isText(value) && value !== "" : isScalar(value);
}

function cellOf(value: Json | undefined, label: FieldLabel): Value {
  if (value === undefined || value === null) return null;
  return typeof value === "object" ? textOf(value, label) : value;
}

function textOf(value: Json | undefined, label: Pick<FieldLabel, "unit" | "display">): string {
  if (value === undefined) return MISSING;
  if (Array.isArray(value)) return value.map((item) => textOf(item, label)).join(", ").slice(0, MAX_TEXT_LENGTH);
  return (isObject(value) ? JSON.stringify(value) : formatValue(value, label)).slice(0, MAX_TEXT_LENGTH);
}
