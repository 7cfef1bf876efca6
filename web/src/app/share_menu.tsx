// Menu on what leaves the page: links, commands, files, and views that are saved with the run.
import { Share2, Trash2 } from "lucide";
import { useState } from "preact/hooks";

import type { RunSession } from "../api/server";
import { copyText } from "../base/copy";
import { useGet } from "../state/fetch";
import { changeNotes, notes, notesError } from "../state/notes";
import { baseRun, link, param, run, screen } from "../state/url";
import { IconButton } from "../widgets/icon_button";
import { Menu } from "../widgets/menu";
import { commandOf } from "./command";
import { SCREENS } from "./screens";

/** Parameters that name runs: a saved view is one of the run that it is stored with. */
const RUN_PARAMS = ["run", "open", "with"];
const [from, to, tab] = [param("from"), param("to"), param("tab")];

export function ShareMenu() {
  return run.value === null ? null : <RunShareMenu key={run.value} id={run.value} />;
}

function RunShareMenu({ id }: { id: string }) {
  const session = useGet<RunSession>("/api/session", { run: id }).data;
  const { views = [] } = SCREENS.find(({ name }) => name === screen.value) ?? {};
  const view = views.find((name) => `-${name}`.endsWith(`-${tab.value ?? ""}`)) ?? views[0] ?? screen.value;
  const command = session === null ? null : commandOf({
    location: session.location,
    view: view === "" ? undefined : view,
    base: screen.value === "compare" ? baseRun.value : null,
    range: { from: from.value, to: to.value },
  });
  return (
    <Menu icon={Share2} label="Share" hasText class="action" testid="share">
      {(close) => (
        <div class="share-menu">
          <CopyLine label="Copy link" text={window.location.href} />
          {command === null ? null : <CopyLine label="Copy command" text={command} />}
          <a class="action" href={`/api/perfetto?${new URLSearchParams({ run: id })}`} download onClick={close}>Open in Perfetto (file)</a>
          <p class="muted">Downloads a file for ui.perfetto.dev, which reads it in the browser. Tables and charts have CSV and PNG next to their titles.</p>
          <SavedViews onSelect={close} />
        </div>
      )}
    </Menu>
  );
}

function CopyLine({ label, text }: { label: string; text: string }) {
  const [isCopied, setIsCopied] = useState<boolean | null>(null);
  return (
    <div class="copy-line">
      <button type="button" class="action" onClick={() => { void copyText(text).then(setIsCopied); }}>{label}</button>
      <input type="text" readOnly value={text} aria-label={label.replace("Copy", "Text of the")} onFocus={(event) => { event.currentTarget.select(); }} />
      <span role="status">{isCopied === null ? "" : isCopied ? "Copied." : "Select the text and copy it."}</span>
    </div>
  );
}

/** Path and query of the current screen, without runs. */
function currentPath(): string {
  const search = new URLSearchParams(window.location.search);
  for (const name of RUN_PARAMS) search.delete(name);
  const text = search.toString();
  return window.location.pathname + (text === "" ? "" : `?${text}`);
}

/** URL of a saved view of the current run. */
export function viewLink(path: string): string {
  const url = new URL(path, window.location.origin);
  const shared = { from: null, to: null, trace: null };
  return link(url.pathname.slice(1), { ...shared, ...Object.fromEntries([...url.searchParams].filter(([name]) => !RUN_PARAMS.includes(name))) });
}

function SavedViews({ onSelect }: { onSelect: () => void }) {
  const [name, setName] = useState("");
  const { views } = notes.value;
  const save = (): void => {
    if (name.trim() === "") return;
    setName("");
    void changeNotes({ add: { notes: [], views: [{ name: name.trim(), path: currentPath() }] }, remove: { notes: [], views: [] } });
  };
  return (
    <section aria-label="Saved views">
      <h2>Saved views of this run</h2>
      {views.length === 0 ? <p class="muted">A saved view is a screen with its range, filters and selection.</p> : (
        <ul>
          {views.map((view) => (
            <li key={view.name}>
              <a href={viewLink(view.path)} onClick={onSelect}>{view.name}</a>
              <IconButton icon={Trash2} label={`Delete ${view.name}`} size={14} onClick={() => { void changeNotes({ add: { notes: [], views: [] }, remove: { notes: [], views: [view] } }); }} />
            </li>
          ))}
        </ul>
      )}
      <form class="copy-line" onSubmit={(event) => { event.preventDefault(); save(); }}>
        <input type="text" value={name} placeholder="Name of this view" aria-label="Name of this view" maxLength={200} onInput={(event) => { setName(event.currentTarget.value); }} />
        <button type="submit" class="action">Save view</button>
      </form>
      {notesError.value === null ? null : <p role="alert" class="error-notice">{notesError.value}</p>}
    </section>
  );
}
