// Dialog with keyboard shortcuts and pointer gestures.
import { signal } from "@preact/signals";

import { ClosableDialog } from "../../widgets/dialog";
import { wheel } from "./choices";

const open = signal(false);

export function toggleHelp(): void {
  open.value = !open.value;
}

const KEYS: readonly (readonly [string, readonly (readonly [string[], string])[]])[] = [
  ["Move", [
    [["W", "S"], "zoom at the pointer"],
    [["A", "D"], "pan left, pan right"],
    [["Shift", "wheel"], "pan left, pan right"],
    [["drag"], "pan; pinch to zoom"],
    [["0"], "show the full run"],
  ]],
  ["Select", [
    [["click"], "select a slice"],
    [["double click"], "zoom to a slice or step"],
    [["←", "→"], "previous, next slice in the row; without a selection, the first in view"],
    [["↑", "↓"], "row above, row below"],
    [["F"], "zoom to the selection"],
    [["Esc"], "clear the selection"],
  ]],
  ["Range", [
    [["drag on the ruler"], "select a range for all screens"],
    [["Shift", "drag"], "select a range anywhere"],
  ]],
  ["Find", [
    [["/"], "search by name"],
    [["N"], "next match; Shift for the previous"],
    [["O"], "next outlier step; Shift for the previous"],
    [["?"], "keyboard shortcuts"],
  ]],
];

/** Rows on the wheel, whose meaning is a choice. */
function wheelRows(): readonly (readonly [string[], string])[] {
  const texts = ["scroll the tracks", "zoom in, zoom out"] as const;
  const [plain, withCtrl] = wheel.value === "scroll" ? texts : [texts[1], texts[0]];
  return [[["wheel"], plain], [["Ctrl", "wheel"], withCtrl]];
}

export function Help() {
  if (!open.value) return null;
  return (
    <ClosableDialog class="tl-help" label="Timeline shortcuts" heading={<h2>Shortcuts and gestures</h2>} closeKey="?" onClose={toggleHelp}>
      <div class="tl-help-groups">
        {KEYS.map(([title, rows]) => (
          <section key={title}>
            <h3>{title}</h3>
            <dl>
              {[...rows, ...(title === "Move" ? wheelRows() : [])].map(([keys, description]) => (
                <div key={description}>
                  <dt>{keys.map((key) => <kbd key={key}>{key}</kbd>)}</dt>
                  <dd>{description}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </ClosableDialog>
  );
}
