// Dialog with a snippet of source code and links that open it in an editor.
import { X } from "lucide";
import { useEffect, useRef } from "preact/hooks";

import type { SourceLines } from "../api/server";
import { useGet } from "../state/fetch";
import { sourceLocation, type SourceLocation } from "../state/source_location";
import { run } from "../state/url";
import { Icon } from "../widgets/icon";
import { ResourceView } from "../widgets/resource_view";

export function SourceViewer() {
  return sourceLocation.value === null ? null : <SourceDialog location={sourceLocation.value} />;
}

function SourceDialog({ location }: { location: SourceLocation }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const snippet = useGet<SourceLines>("/api/source", { run: run.value, file: location.file, line: location.line });
  const close = (): void => { sourceLocation.value = null; };
  return (
    <dialog ref={dialog} class="source" aria-label={`Source of ${location.file}`} onClose={close}>
      <header>
        <b class="path">{location.file}:{location.line}</b>
        <button type="button" class="quiet" aria-label="Close" onClick={close}><Icon icon={X} /></button>
      </header>
      <ResourceView resource={snippet}>
        {(snippet) => (
          <>
            <pre class="code">
              {snippet.lines.map((text, index) => {
                const line = snippet.first_line + index;
                return (
                  <div key={line} class={line === snippet.line ? "current-line" : ""}>
                    <span class="line-number">{line}</span>{text || " "}
                  </div>
                );
              })}
            </pre>
            <p class="muted">
              {snippet.recorded ? "Recorded when the job ran." : "Current version of the file; the job may have run an older one."}
            </p>
            <p class="editors">
              {snippet.opens.vscode === null ? null : <a href={snippet.opens.vscode} target="_self">Open in VS Code</a>}
              {snippet.opens.pycharm === null ? null : <a href={snippet.opens.pycharm} target="_self">Open in PyCharm</a>}
            </p>
          </>
        )}
      </ResourceView>
    </dialog>
  );
}
