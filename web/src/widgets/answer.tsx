// A payload on its way, there, or refused; and what is missing from one that is there.
import type { ComponentChildren } from "preact";

import type { Loaded } from "../api/client";
import type { QualityNote, TimeRange } from "../api/views";
import { sentence } from "../base/text";
import { Prose } from "./prose";

interface Props<T> {
  of: Loaded<T>;
  children: (payload: T) => ComponentChildren;
}

/** What `children` makes of a payload, once it is there. */
export function Answer<T>({ of, children }: Props<T>) {
  if (of.data !== null) {
    return (
      <div class={of.loading ? "answer stale" : "answer"} aria-busy={of.loading}>
        {of.error === null ? null : <Refused text={of.error.message} />}
        {children(of.data)}
      </div>
    );
  }
  if (of.error !== null) return <Refused text={of.error.message} />;
  return <Waiting />;
}

export function Refused({ text }: { text: string }) {
  return <p class="refused" role="alert">{text}</p>;
}

export function Waiting() {
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
export function Empty({ text, title = "Nothing to show here" }: { text: string; title?: string }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      <p><Prose text={sentence(text)} /></p>
    </div>
  );
}

interface DoubtsProps {
  quality: QualityNote[];
  notes?: string[];
  /** The range that the payload is about, null for the whole run. */
  range?: TimeRange | null;
}

/** What makes the numbers of a screen doubtful. */
export function Doubts({ quality, notes = [], range = null }: DoubtsProps) {
  const sentences = [...new Set([...(range === null ? [] : [`of the chosen range: ${range.range_of}`, ...range.notes]), ...quality.map((note) => note.sentence), ...notes])];
  if (sentences.length === 0) return null;
  return (
    <details class="doubts" open={sentences.length <= 2}>
      <summary>What to know about these numbers ({sentences.length})</summary>
      <ul>{sentences.map((text) => <li key={text}><Prose text={sentence(text)} /></li>)}</ul>
    </details>
  );
}
