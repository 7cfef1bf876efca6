// Text whose lines of code, such as `train.py:12`, open the source.
import type { ComponentChildren } from "preact";

import { openSource } from "../state/source_location";

const LINE = /((?:[\w.@-]*\/)*[\w.-]+\.py:\d+)/;

export function linkSourceLines(text: string): ComponentChildren {
  const parts = text.split(LINE);
  return parts.length === 1 ? text : parts.map((part, index) => (index % 2 === 1 ? <SourceLine key={index} text={part} /> : part));
}

function SourceLine({ text }: { text: string }) {
  const colon = text.lastIndexOf(":");
  return <button type="button" class="line-link" title={`${text}: show source`} onClick={() => { openSource(text.slice(0, colon), Number(text.slice(colon + 1))); }}>{text}</button>;
}
