// Dialog with a snippet of source code and links that open it in an editor.
import type { SourceLines } from "../api/server";
import { useGet } from "../state/fetch";
import { sourceLocation, type SourceLocation } from "../state/source_location";
import { run } from "../state/url";
import { ClosableDialog } from "../widgets/dialog";
import { ResourceView } from "../widgets/resource_view";

export function SourceViewer() {
  return sourceLocation.value === null ? null : <SourceDialog location={sourceLocation.value} />;
}

function SourceDialog({ location }: { location: SourceLocation }) {
  const snippet = useGet<SourceLines>("/api/source", { run: run.value, file: location.file, line: location.line });
  const close = (): void => { sourceLocation.value = null; };
  return (
    <ClosableDialog class="source" label={`Source of ${location.file}`} heading={<b class="path">{location.file}:{location.line}</b>} onClose={close}>
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
    </ClosableDialog>
  );
}
