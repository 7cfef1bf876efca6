// Text whose lines of code, such as `train.py:12`, open the source.
import type { ComponentChildren } from "preact";

import { openSource } from "../state/source_location";

const LINE = /(?<![\p{L}\p{N}_.@/-])((?:[\p{L}\p{N}_.@-]*\/)*[\p{L}\p{N}_.-]+\.py:\d+)/u;

export function linkSourceLines(text: string): ComponentChildren {
  const parts = text.split(LINE);
  return parts.length === 1 ? text : parts.map((part, index) => (index % 2 === 1 ? <SourceLine key={index} text={part} /> : part));
}

/** A link, as a button would not break with its sentence. */
function SourceLine({ text }: { text: string }) {
  const open = (event: Event): void => {
    event.preventDefault();
    const colon = text.lastIndexOf(":");
    openSource(text.slice(0, colon), Number(text.slice(colon + 1)));
  };
  return <a class="line-link" href="#source" title={`${text}: show source`} onClick={open}>{text}</a>;
}
