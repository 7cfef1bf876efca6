// Definition of the figures below a title: a button behind the title that shows its text.
import type { ComponentChildren } from "preact";
import { useId, useState } from "preact/hooks";

import { sentence } from "../base/text";
import { Prose } from "./prose";

/** Make the button and the text that it shows; print has the text anyway. Both are null without a text. */
export function useDefinition(title: string, text: string | null | undefined): [ComponentChildren, ComponentChildren] {
  const [isOpen, setOpen] = useState(false);
  const id = useId();
  if (text === null || text === undefined) return [null, null];
  return [
    <button
      key="button"
      type="button"
      class="definition-button"
      aria-label={`Definition: ${title}`}
      title={sentence(text)}
      aria-expanded={isOpen}
      aria-controls={id}
      onClick={() => { setOpen(!isOpen); }}
      onKeyDown={(event) => { if (event.key === "Escape") setOpen(false); }}
    >
      ?
    </button>,
    <p key="text" id={id} class="definition-text muted" hidden={!isOpen}><Prose text={sentence(text)} /></p>,
  ];
}
