// The tree of tracks beside the picture. Only lines in view are on the page.
import { ChevronDown, ChevronRight, ChevronsDownUp, ChevronsUpDown, Pin, PinOff } from "lucide";
import { useEffect, useRef } from "preact/hooks";
import { signal } from "@preact/signals";

import { countOf } from "../../base/quantities";
import { shortId } from "../../base/short_id";
import { displayText } from "../../canvas/text";
import { linesIn, type Line } from "../../canvas/tree";
import { Icon } from "../../widgets/icon";
import { filter, folds, pins, setFilter, setFolds, togglePin } from "./address";
import type { Commands } from "./commands";
import type { Model } from "./model";

/** Browsers cannot lay out higher elements; what is beyond is scrolled to in larger steps. */
const HIGHEST_PX = 8_000_000;
const LABEL_CHARACTERS = 300;

/** Id of the line that has the keyboard's focus. */
const focused = signal<string | null>(null);

export function toggleFold(id: string): void {
  const { initially, toggled } = folds.peek();
  const next = new Set(toggled);
  if (!next.delete(shortId(id))) next.add(shortId(id));
  setFolds({ initially, toggled: next });
}

export function TreeHead() {
  return (
    <div class="tl-tree-head">
      <input
        type="search"
        placeholder="Filter tracks"
        aria-label="Filter tracks by name"
        data-testid="timeline-filter"
        value={filter.value}
        onInput={(event) => { setFilter(event.currentTarget.value); }}
      />
      <button
        type="button"
        class="quiet"
        title="Open all groups"
        aria-label="Open all groups"
        onClick={() => { setFolds({ initially: "open", toggled: new Set() }); }}
      >
        <Icon icon={ChevronsUpDown} size={15} />
      </button>
      <button
        type="button"
        class="quiet"
        title="Close all groups"
        aria-label="Close all groups"
        onClick={() => { setFolds({ initially: "closed", toggled: new Set() }); }}
      >
        <Icon icon={ChevronsDownUp} size={15} />
      </button>
    </div>
  );
}

export function Pinned({ model }: { model: Model }) {
  const { lines, height } = model.pinned.value;
  if (lines.length === 0) return null;
  return (
    <ul class="tl-pinned" aria-label="Pinned tracks" style={{ height: `${height}px` }}>
      {lines.map((line) => (
        <li key={line.id} style={lineStyle(line, 0)} class="tl-line track">
          <Name line={line} />
          <PinButton line={line} />
        </li>
      ))}
    </ul>
  );
}

interface Props {
  model: Model;
  commands: Commands;
}

export function TrackTree({ model, commands }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const tree = model.tree.value;
  const room = model.treeHeight.value;
  const top = Math.min(model.scroll.value, model.furthest.value);
  const height = Math.min(HIGHEST_PX, Math.max(tree.height, room));
  // Scrolled pixels of the tree for one of the scroll bar.
  const ratio = height > room ? Math.max(1, (tree.height - room) / (height - room)) : 1;
  useEffect(() => {
    const element = scroller.current;
    if (element !== null && Math.abs(element.scrollTop * ratio - top) > ratio) element.scrollTop = top / ratio;
  }, [top, ratio, height]);
  const lines = linesIn(tree, top, top + room);
  const active = focused.value !== null && tree.byId.has(focused.value) ? focused.value : null;
  return (
    <div
      ref={scroller}
      class="tl-tree"
      role="tree"
      aria-label="Tracks"
      aria-activedescendant={active === null ? undefined : `tl-${shortId(active)}`}
      tabIndex={0}
      style={{ height: `${room}px` }}
      onScroll={(event) => { model.scroll.value = event.currentTarget.scrollTop * ratio; }}
      onKeyDown={(event) => { steer(event, model, commands); }}
    >
      <div role="none" style={{ height: `${height}px` }}>
        <div role="none" class="tl-lines" style={{ height: `${room}px` }}>
          {lines.length === 0
            ? <p role="treeitem" class="muted tl-none">No track has this name.</p>
            : lines.map((line) => <Item key={line.id} line={line} top={top} active={line.id === active} />)}
        </div>
      </div>
    </div>
  );
}

function Item({ line, top, active }: { line: Line; top: number; active: boolean }) {
  return (
    <div
      id={`tl-${shortId(line.id)}`}
      role="treeitem"
      class={`tl-line ${line.kind}${active ? " active" : ""}`}
      aria-level={line.level}
      aria-setsize={line.siblings}
      aria-posinset={line.positionInSet}
      aria-expanded={line.canCollapse ? line.isOpen : undefined}
      aria-selected={active}
      style={{ ...lineStyle(line, top), "--level": line.level - 1 }}
      onClick={() => {
        focused.value = line.id;
        if (line.kind === "group") toggleFold(line.id);
      }}
    >
      {line.canCollapse ? (
        <button
          type="button"
          class="tl-fold"
          tabIndex={-1}
          aria-label={line.isOpen ? "Fold" : "Unfold"}
          onClick={(event) => {
            event.stopPropagation();
            toggleFold(line.id);
          }}
        >
          <Icon icon={line.isOpen ? ChevronDown : ChevronRight} size={14} />
        </button>
      ) : <span class="tl-fold" />}
      <Name line={line} />
      {line.kind === "track" ? <PinButton line={line} /> : null}
    </div>
  );
}

function lineStyle(line: Line, top: number) {
  return { top: `${line.y - top}px`, height: `${line.height}px` };
}

function Name({ line }: { line: Line }) {
  const name = displayText(line.name, LABEL_CHARACTERS);
  const count = line.track?.event_count;
  const counted = count === null || count === undefined ? "" : ` · ${countOf(count, "event")}`;
  const around = line.pinned ? `${displayText(line.group.name, LABEL_CHARACTERS)} › ` : "";
  return <bdi class="tl-name" title={`${around}${name}${counted}`}>{name}</bdi>;
}

function PinButton({ line }: { line: Line }) {
  const on = pins.value.includes(line.id);
  const words = `${on ? "Unpin" : "Pin"} ${displayText(line.name, 60)}`;
  return (
    <button
      type="button"
      class={on ? "tl-pin on" : "tl-pin"}
      tabIndex={-1}
      title={on ? "Unpin" : "Pin to the top"}
      aria-label={words}
      aria-pressed={on}
      onClick={(event) => {
        event.stopPropagation();
        togglePin(line.id);
      }}
    >
      <Icon icon={on ? PinOff : Pin} size={13} />
    </button>
  );
}

/** Keys of a tree, as people who do not use a pointer expect them. */
function steer(event: KeyboardEvent, model: Model, commands: Commands): void {
  const { lines, byId } = model.tree.peek();
  const now = focused.peek() === null ? undefined : byId.get(focused.peek() ?? "");
  const at = now === undefined ? -1 : lines.indexOf(now);
  const go = (index: number): void => {
    const line = lines[Math.max(0, Math.min(lines.length - 1, index))];
    if (line === undefined) return;
    focused.value = line.id;
    commands.showLine(line);
  };
  const fold = (open: boolean): boolean => {
    if (now === undefined || !now.canCollapse || now.isOpen === open) return false;
    toggleFold(now.id);
    return true;
  };
  switch (event.key) {
    case "ArrowDown": go(at + 1); break;
    case "ArrowUp": go(at - 1); break;
    case "Home": go(0); break;
    case "End": go(lines.length - 1); break;
    case "ArrowRight": if (!fold(true)) go(at + 1); break;
    case "ArrowLeft": if (!fold(false) && now !== undefined && now.parent >= 0) go(now.parent); break;
    case "Enter":
    case " ": if (now?.canCollapse) toggleFold(now.id); break;
    case "p": if (now?.kind === "track") togglePin(now.id); break;
    default: return;
  }
  event.preventDefault();
  event.stopPropagation();
}
