// Header of a screen: title, description and controls.
import type { ComponentChildren } from "preact";

import { useDefinition } from "./definition";
import { Prose } from "./prose";

interface Props {
  title: string;
  description?: string | null | undefined;
  /** What the figures are of, such as the denominator of shares; shown on request. */
  definition?: string | null | undefined;
  children?: ComponentChildren;
}

export function PageHeader({ title, description, definition, children }: Props) {
  const [definitionButton, definitionText] = useDefinition(title, definition);
  return (
    <header class="head">
      <div>
        <div class="page-title"><h1>{title}</h1>{definitionButton}</div>
        {definitionText}
        {description === undefined || description === null ? null : <p class="muted">{description}</p>}
      </div>
      <div class="tools">{children}</div>
    </header>
  );
}

/** The answer of a screen in a sentence, above its pictures. */
export function Answer({ text }: { text: string | null | undefined }) {
  return text ? <h2 class="answer" data-testid="answer"><Prose text={text} /></h2> : null;
}
