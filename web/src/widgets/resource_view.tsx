// A payload on its way, there, or refused; and what is missing from one that is there.
import type { ComponentChildren } from "preact";

import type { Resource } from "../api/client";
import type { QualityNote, TimeRange } from "../api/views";
import { sentence } from "../base/text";
import { Prose } from "./prose";

interface Props<T> {
  resource: Resource<T>;
  children: (payload: T) => ComponentChildren;
}

/** What `children` makes of a payload, once it is there. */
export function ResourceView<T>({ resource, children }: Props<T>) {
  if (resource.data !== null) {
    return (
      <div class={resource.loading ? "answer stale" : "answer"} aria-busy={resource.loading}>
        {resource.error === null ? null : <ErrorNotice text={resource.error.message} />}
        {children(resource.data)}
      </div>
    );
  }
  if (resource.error !== null) return <ErrorNotice text={resource.error.message} />;
  return <Skeleton />;
}

export function ErrorNotice({ text }: { text: string }) {
  return <p class="refused" role="alert">{text}</p>;
}

export function Skeleton() {
  return (
    <div class="waiting" role="status">
      <span class="hidden">Loading</span>
      <div class="shimmer wide" />
      <div class="shimmer" />
      <div class="shimmer tall" />
    </div>
  );
}

/** Stands in for what cannot be shown; commands in back quotes can be copied. */
export function EmptyState({ text, title = "Nothing to show here" }: { text: string; title?: string }) {
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
  /** The range that the payload is about, null for the whole run. */
  range?: TimeRange | null;
}

/** What makes the numbers of a screen doubtful. */
export function QualityNotes({ quality, notes = [], range = null }: QualityNotesProps) {
  const sentences = [...new Set([...(range === null ? [] : [`of the chosen range: ${range.range_of}`, ...range.notes]), ...quality.map((note) => note.sentence), ...notes])];
  if (sentences.length === 0) return null;
  return (
    <details class="doubts" open={sentences.length <= 2}>
      <summary>What to know about these numbers ({sentences.length})</summary>
      <ul>{sentences.map((text) => <li key={text}><Prose text={sentence(text)} /></li>)}</ul>
    </details>
  );
}
