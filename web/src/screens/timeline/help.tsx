// Dialog with keyboard shortcuts and pointer gestures.
import { X } from "lucide";
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { Icon } from "../../widgets/icon";

const open = signal(false);

export function toggleHelp(): void {
  open.value = !open.value;
}

const KEYS: readonly (readonly [string, readonly (readonly [string[], string])[]])[] = [
  ["Move", [
    [["W", "S"], "nearer, farther, at the pointer"],
    [["A", "D"], "earlier, later"],
    [["wheel"], "nearer, farther"],
    [["Shift", "wheel"], "earlier, later"],
    [["drag"], "move the picture; two fingers zoom"],
    [["0"], "the whole run"],
  ]],
  ["Select", [
    [["click"], "a slice and its details"],
    [["double click"], "come close to a slice or step"],
    [["←", "→"], "previous, next slice of the row"],
    [["↑", "↓"], "row above, row below"],
    [["F"], "come close to what is selected"],
    [["Esc"], "select nothing"],
  ]],
  ["Range", [
    [["drag on the ruler"], "choose a range, for all screens"],
    [["Shift", "drag"], "the same, anywhere"],
  ]],
  ["Find", [
    [["/"], "find by name"],
    [["N"], "next match; with Shift the previous one"],
    [["O"], "next outlier step; with Shift the previous one"],
    [["?"], "this list"],
  ]],
];

export function Help() {
  return open.value ? <Dialog /> : null;
}

function Dialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => { dialog.current?.showModal(); }, []);
  const close = (): void => { open.value = false; };
  return (
    <dialog
      ref={dialog}
      class="tl-help"
      aria-label="Keys of the timeline"
      onClose={close}
      onKeyDown={(event) => { if (event.key === "?") close(); }}
      onClick={(event) => { if (event.target === dialog.current) close(); }}
    >
      <header>
        <h2>Keys and gestures</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={close}><Icon icon={X} /></button>
      </header>
      <div class="tl-help-groups">
        {KEYS.map(([title, rows]) => (
          <section key={title}>
            <h3>{title}</h3>
            <dl>
              {rows.map(([keys, words]) => (
                <div key={words}>
                  <dt>{keys.map((key) => <kbd key={key}>{key}</kbd>)}</dt>
                  <dd>{words}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </dialog>
  );
}
