// States of a requested payload: loading, loaded, failed, empty; and its quality notes.
import type { ComponentChildren } from "preact";

import type { Resource } from "../base/client";
import type { QualityNote, TimeRange } from "../api/views";
import { sentence } from "../base/text";
import { Prose } from "./prose";

interface Props<T> {
  resource: Resource<T>;
  children: (payload: T) => ComponentChildren;
  /** True below another view of the same run, which has told what may change its figures. */
  isSecond?: boolean;
  /** What the screen says of its payload: doubts in it are not said twice. */
  headlineOf?: (payload: T) => string;
}

/** Render `children` with the payload once it has arrived. */
export function ResourceView<T>({ resource, children, isSecond = false, headlineOf }: Props<T>) {
  if (resource.data !== null) {
    const headline = headlineOf?.(resource.data) ?? "";
    const doubts = isSecond ? [] : sentencesOf(resource.data, "doubts").filter((text) => !headline.includes(text));
    return (
      <div class={resource.loading ? "resource stale" : "resource"} aria-busy={resource.loading}>
        {resource.error === null ? null : <ErrorNotice text={resource.error.message} />}
        <Notice sentences={sentencesOf(resource.data, "damage")} id="damage" />
        <Notice sentences={doubts} id="doubts" />
        <LimitationNotice id="recording-end" text={isSecond ? null : sentenceOf(resource.data, "recording_end")} />
        <LimitationNotice id="rounding" text={sentenceOf(resource.data, "rounding")} />
        {children(resource.data)}
      </div>
    );
  }
  if (resource.error !== null) return <ErrorNotice text={resource.error.message} />;
  return <Skeleton />;
}

/** Sentences in a field of a payload: unreadable files behind it, or doubts about its traces. */
function sentencesOf(payload: unknown, field: string): string[] {
  if (typeof payload !== "object" || payload === null) return [];
  const sentences: unknown = Object.entries(payload).find(([name]) => name === field)?.[1];
  return Array.isArray(sentences) ? sentences.map(String) : [];
}

/** Sentence in a field of a payload, about data that were not recorded to the end of the job or are rounded. */
function sentenceOf(payload: unknown, field: string): string | null {
  if (typeof payload !== "object" || payload === null) return null;
  const text: unknown = Object.entries(payload).find(([name]) => name === field)?.[1];
  return typeof text === "string" ? text : null;
}

function LimitationNotice({ id, text }: { id: string; text: string | null }) {
  return text === null ? null : <p class="quality-notes" data-testid={id}>{text}</p>;
}

export function Notice({ sentences, id }: { sentences: string[]; id: string }) {
  if (sentences.length === 0) return null;
  if (sentences.length === 1) return <p class="error-notice" role="alert" data-testid={id}>{sentences[0]}</p>;
  return (
    <div class="error-notice" role="alert" data-testid={id}>
      <ul>{sentences.map((text) => <li key={text}>{text}</li>)}</ul>
    </div>
  );
}

export function ErrorNotice({ text }: { text: string }) {
  return <p class="error-notice" role="alert">{text}</p>;
}

export function Skeleton() {
  return (
    <div class="skeleton" role="status">
      <span class="hidden">Loading</span>
      <div class="skeleton-block wide" />
      <div class="skeleton-block" />
      <div class="skeleton-block tall" />
    </div>
  );
}

/** Empty state; commands in backticks are shown as code. */
export function EmptyState({ text, title = "No data" }: { text: string; title?: string }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      <p><Prose text={sentence(text)} /></p>
    </div>
  );
}

interface QualityNotesProps {
  quality: QualityNote[];
  notes?: string[];
  /** Selected range; null for the whole run. */
  range?: TimeRange | null;
}

/** Quality notes on the numbers of a screen. */
export function QualityNotes({ quality, notes = [], range = null }: QualityNotesProps) {
  const sentences = [...new Set([...(range === null ? [] : [`selected range: ${range.range_of}`, ...range.notes]), ...quality.map((note) => note.sentence), ...notes])];
  const [first, ...rest] = sentences;
  if (first === undefined) return null;
  if (rest.length === 0) return <p class="quality-notes"><Prose text={sentence(first)} /></p>;
  return (
    <details class="quality-notes">
      <summary>Data quality notes ({sentences.length}): <Prose text={sentence(first)} /></summary>
      <ul>{sentences.map((text) => <li key={text}><Prose text={sentence(text)} /></li>)}</ul>
    </details>
  );
}
