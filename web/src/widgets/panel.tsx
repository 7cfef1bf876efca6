// Panel of a screen: title, description, controls and downloads.
import { Download, Image } from "lucide";
import type { ComponentChildren } from "preact";

import { sentence } from "../base/text";
import { useDefinition } from "./definition";
import { Icon } from "./icon";
import { Prose } from "./prose";

interface Props {
  title: string;
  /** Sentence below the title. */
  description?: string | null | undefined;
  /** What the figures are of, such as the denominator of shares; shown on request. */
  definition?: string | null | undefined;
  onCsv?: (() => void) | undefined;
  onPng?: (() => void) | undefined;
  tools?: ComponentChildren;
  wide?: boolean;
  /** Highlighted as the details of a selection. */
  isSelection?: boolean;
  testid?: string | undefined;
  children: ComponentChildren;
}

export function Panel({ title, description, definition, onCsv, onPng, tools, wide = false, isSelection = false, testid, children }: Props) {
  const [definitionButton, definitionText] = useDefinition(title, definition);
  return (
    <section class={`panel ${wide ? "wide" : ""} ${isSelection ? "selection-panel" : ""}`} aria-label={title} data-testid={testid}>
      <header>
        <div class="panel-title"><h2>{title}</h2>{definitionButton}</div>
        <div class="panel-tools">
          {tools}
          {onCsv === undefined ? null : (
            <button type="button" class="quiet" onClick={onCsv} aria-label={`CSV of ${title}`} title={`${title} as CSV`}>
              <Icon icon={Download} size={15} /> <span>CSV</span>
            </button>
          )}
          {onPng === undefined ? null : (
            <button type="button" class="quiet" onClick={onPng} aria-label={`PNG of ${title}`} title={`${title} as PNG`}>
              <Icon icon={Image} size={15} /> <span>PNG</span>
            </button>
          )}
        </div>
      </header>
      {definitionText}
      {description === undefined || description === null ? null : <p class="muted about"><Prose text={sentence(description)} /></p>}
      {children}
    </section>
  );
}
