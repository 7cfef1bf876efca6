// A place in the source: a snippet, and the editors that can open it.
import { X } from "lucide";
import { useEffect, useRef } from "preact/hooks";

import type { SourceLines } from "../api/server";
import { useGet } from "../state/fetch";
import { source, type Place } from "../state/source";
import { run } from "../state/url";
import { Answer } from "../widgets/answer";
import { Icon } from "../widgets/icon";

export function Source() {
  return source.value === null ? null : <Window place={source.value} />;
}

function Window({ place }: { place: Place }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const found = useGet<SourceLines>("/api/source", { run: run.value, file: place.file, line: place.line });
  const close = (): void => { source.value = null; };
  return (
    <dialog ref={dialog} class="source" aria-label={`Source of ${place.file}`} onClose={close}>
      <header>
        <b class="path">{place.file}:{place.line}</b>
        <button type="button" class="quiet" aria-label="Close" onClick={close}><Icon icon={X} /></button>
      </header>
      <Answer of={found}>
        {(snippet) => (
          <>
            <pre class="code">
              {snippet.lines.map((text, index) => {
                const line = snippet.first_line + index;
                return (
                  <div key={line} class={line === snippet.line ? "here" : ""}>
                    <span class="line-number">{line}</span>{text || " "}
                  </div>
                );
              })}
            </pre>
            <p class="muted">
              {snippet.recorded ? "As the job ran it." : "As the file is today; the job may have run an older one."}
            </p>
            <p class="editors">
              {snippet.opens.vscode === null ? null : <a href={snippet.opens.vscode} target="_self">Open in VS Code</a>}
              {snippet.opens.pycharm === null ? null : <a href={snippet.opens.pycharm} target="_self">Open in PyCharm</a>}
            </p>
          </>
        )}
      </Answer>
    </dialog>
  );
}
