// Traces that are in no run yet, their import, and the state of imports.
import { Upload } from "lucide";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import type { Jobs, TraceRow } from "../../api/views";
import { countOf, percent } from "../../base/quantities";
import { LinkedTable } from "../../parts/linked_table";
import { toggleItem } from "../../parts/url_options";
import { type Import, importFile, importTraces, imports } from "../../state/imports";
import { link } from "../../state/url";
import { column, columns, type Field } from "../../widgets/fields";
import { Icon } from "../../widgets/icon";

/** Table of the traces; nothing if there are none. */
export function TraceTable({ payload }: { payload: Jobs }) {
  const { traces } = payload;
  const canImport = payload.why_not_import === null;
  const [checkedIds, setCheckedIds] = useState<string[]>([]);
  const fields = useMemo(
    () => traceFields(canImport, checkedIds, (id) => { setCheckedIds((ids) => toggleItem(ids, id)); }),
    [canImport, checkedIds.join("\n")],
  );
  if (traces.length === 0) return null;
  const selected = traces.map((trace) => trace.id).filter((id) => checkedIds.includes(id));
  const importSelected = (): void => {
    setCheckedIds([]);
    void importTraces(countOf(selected.length, "trace"), selected);
  };
  return (
    <LinkedTable
      id="traces"
      title="Traces that are not imported"
      testid="table-traces"
      rows={traces}
      fields={fields}
      description={payload.why_not_import}
      tools={selected.length === 0 ? null : (
        <button type="button" class="action strong" data-testid="import-traces" onClick={importSelected}>
          Import {countOf(selected.length, "trace")} as one run
        </button>
      )}
    />
  );
}

function traceFields(canImport: boolean, checkedIds: readonly string[], toggle: (id: string) => void): Field<TraceRow>[] {
  return columns<"TraceRow", TraceRow>(
    "TraceRow",
    canImport && column("chosen", "select", "none", (trace) => checkedIds.includes(trace.id), {
      draw: (trace) => (
        <input
          type="checkbox"
          aria-label={`Select ${trace.id.slice(0, 200)}`}
          checked={checkedIds.includes(trace.id)}
          onChange={() => { toggle(trace.id); }}
        />
      ),
    }),
    ["id", { draw: (trace) => <span class="name" title={trace.id.slice(0, 800)}>{trace.id.slice(0, 400)}</span> }],
    "worker", "rank", "changed_ms", "size_bytes",
    canImport && column("import", "import", "none", () => null, {
      draw: (trace) => (
        <button
          type="button"
          class="action"
          aria-label={`Import ${trace.id.slice(0, 200)}`}
          onClick={() => { void importTraces(trace.id, [trace.id]); }}
        >
          Import
        </button>
      ),
    }),
  );
}

/** Button that imports files of this browser, which can also be dropped on the page. */
export function ImportButton() {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => acceptDrops(importFiles), []);
  return (
    <>
      <button type="button" class="action" title="Or drop files on this page" onClick={() => input.current?.click()}>
        <Icon icon={Upload} size={16} /> Import traces
      </button>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        data-testid="trace-files"
        onChange={(event) => {
          importFiles([...(event.currentTarget.files ?? [])]);
          event.currentTarget.value = "";
        }}
      />
    </>
  );
}

function importFiles(files: readonly File[]): void {
  for (const file of files) void importFile(file);
}

/** Call a function with the files that are dropped on the page, and return a function that ends that. */
function acceptDrops(onFiles: (files: readonly File[]) => void): () => void {
  const allow = (event: DragEvent): void => {
    if (event.dataTransfer?.types.includes("Files") === true) event.preventDefault();
  };
  const drop = (event: DragEvent): void => {
    allow(event);
    onFiles([...(event.dataTransfer?.files ?? [])]);
  };
  document.addEventListener("dragover", allow);
  document.addEventListener("drop", drop);
  return () => {
    document.removeEventListener("dragover", allow);
    document.removeEventListener("drop", drop);
  };
}

/** State of the imports that this page has requested. */
export function ImportStates() {
  return (
    <div role="status" data-testid="imports">
      {imports.value.map((item, index) => <p key={index}><ImportState item={item} /></p>)}
    </div>
  );
}

function ImportState({ item }: { item: Import }) {
  const run = item.progress?.run ?? null;
  if (run === null) return <>{importText(item)}</>;
  return <>{item.title}: imported as <a href={link("overview", { run, from: null, to: null })}>{run}</a></>;
}

/** Describe the state of an import without a run. */
export function importText({ title, progress, failure }: Import): string {
  if (failure !== null) return `${title}: ${failure}`;
  if (progress === null) return `${title}: sending …`;
  if (progress.done_ratio === null) return `${title}: waiting …`;
  return `${title}: importing, ${percent(progress.done_ratio)}`;
}
