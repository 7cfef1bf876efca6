// Tree of tracks next to the canvas. Only visible lines are rendered.
import { signal } from "@preact/signals";
import { ChevronDown, ChevronRight, ChevronsDownUp, ChevronsUpDown, Pin, PinOff } from "lucide";
import { useEffect, useRef } from "preact/hooks";

import { countOf } from "../../base/quantities";
import { shortId } from "../../base/short_id";
import { displayText } from "../../canvas/text";
import { linesIn, type Line } from "../../canvas/tree";
import { IconButton } from "../../widgets/icon_button";
import type { Commands } from "./commands";
import type { Model } from "./model";
import { trackFilter, collapseState, pinnedIds, setTrackFilter, setCollapseState, togglePin } from "./url_state";

/** Browsers limit the height of elements; beyond it, scrolling is scaled. */
const MAX_ELEMENT_PX = 8_000_000;
const LABEL_CHARACTERS = 300;

/** Id of the line with keyboard focus. */
const focusedLine = signal<string | null>(null);

export function toggleCollapsed(id: string): void {
  const { defaultState, toggledIds } = collapseState.peek();
  const next = new Set(toggledIds);
  if (!next.delete(shortId(id))) next.add(shortId(id));
  setCollapseState({ defaultState, toggledIds: next });
}

export function TreeHeader() {
  return (
    <div class="tl-tree-head">
      <input
        type="search"
        placeholder="Filter tracks"
        aria-label="Filter tracks by name"
        data-testid="timeline-filter"
        value={trackFilter.value}
        onInput={(event) => { setTrackFilter(event.currentTarget.value); }}
      />
      <IconButton icon={ChevronsUpDown} label="Open all groups" onClick={() => { setCollapseState({ defaultState: "open", toggledIds: new Set() }); }} />
      <IconButton icon={ChevronsDownUp} label="Close all groups" onClick={() => { setCollapseState({ defaultState: "closed", toggledIds: new Set() }); }} />
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
          <LineName line={line} />
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
  const visibleHeight = model.treeHeight.value;
  const top = Math.min(model.scrollTop.value, model.maxScroll.value);
  const height = Math.min(MAX_ELEMENT_PX, Math.max(tree.height, visibleHeight));
  // Pixels of the tree per pixel of the scroll bar.
  const ratio = height > visibleHeight ? Math.max(1, (tree.height - visibleHeight) / (height - visibleHeight)) : 1;
  useEffect(() => {
    const element = scroller.current;
    if (element !== null && Math.abs(element.scrollTop * ratio - top) > ratio) element.scrollTop = top / ratio;
  }, [top, ratio, height]);
  const lines = linesIn(tree, top, top + visibleHeight);
  const focusedId = focusedLine.value !== null && tree.byId.has(focusedLine.value) ? focusedLine.value : null;
  return (
    <div
      ref={scroller}
      class="tl-tree"
      role="tree"
      aria-label="Tracks"
      aria-activedescendant={focusedId === null ? undefined : `tl-${shortId(focusedId)}`}
      tabIndex={0}
      style={{ height: `${visibleHeight}px` }}
      onScroll={(event) => { model.scrollTop.value = event.currentTarget.scrollTop * ratio; }}
      onKeyDown={(event) => { handleKey(event, model, commands); }}
    >
      <div role="none" style={{ height: `${height}px` }}>
        <div role="none" class="tl-lines" style={{ height: `${visibleHeight}px` }}>
          {lines.length === 0
            ? <p role="treeitem" class="muted tl-empty">No matching tracks.</p>
            : lines.map((line) => <TreeItem key={line.id} line={line} top={top} isFocused={line.id === focusedId} />)}
        </div>
      </div>
    </div>
  );
}

function TreeItem({ line, top, isFocused }: { line: Line; top: number; isFocused: boolean }) {
  return (
    <div
      id={`tl-${shortId(line.id)}`}
      role="treeitem"
      class={`tl-line ${line.kind}${isFocused ? " active" : ""}`}
      aria-level={line.level}
      aria-setsize={line.siblings}
      aria-posinset={line.positionInSet}
      aria-expanded={line.canCollapse ? line.isOpen : undefined}
      aria-selected={isFocused}
      style={{ ...lineStyle(line, top), "--level": line.level - 1 }}
      onClick={() => {
        focusedLine.value = line.id;
        if (line.kind === "group") toggleCollapsed(line.id);
      }}
    >
      {line.canCollapse ? (
        <IconButton
          class="tl-collapse"
          icon={line.isOpen ? ChevronDown : ChevronRight}
          label={line.isOpen ? "Collapse" : "Expand"}
          size={14}
          tabIndex={-1}
          onClick={(event) => {
            event.stopPropagation();
            toggleCollapsed(line.id);
          }}
        />
      ) : <span class="tl-collapse" />}
      <LineName line={line} />
      {line.kind === "track" ? <PinButton line={line} /> : null}
    </div>
  );
}

function lineStyle(line: Line, top: number) {
  return { top: `${line.y - top}px`, height: `${line.height}px` };
}

function LineName({ line }: { line: Line }) {
  const name = displayText(line.name, LABEL_CHARACTERS);
  const count = line.track?.event_count;
  const suffix = count === null || count === undefined ? "" : ` · ${countOf(count, "event")}`;
  const prefix = line.pinned ? `${displayText(line.group.name, LABEL_CHARACTERS)} › ` : "";
  return <bdi class="tl-name" title={`${prefix}${name}${suffix}`}>{name}</bdi>;
}

function PinButton({ line }: { line: Line }) {
  const isPinned = pinnedIds.value.includes(line.id);
  return (
    <IconButton
      class="tl-pin"
      icon={isPinned ? PinOff : Pin}
      label={`${isPinned ? "Unpin" : "Pin"} ${displayText(line.name, 60)}`}
      title={isPinned ? "Unpin" : "Pin to top"}
      size={13}
      pressed={isPinned}
      tabIndex={-1}
      onClick={(event) => {
        event.stopPropagation();
        togglePin(line.id);
      }}
    />
  );
}

/** Keyboard navigation after the ARIA tree pattern: https://www.w3.org/WAI/ARIA/apg/patterns/treeview/ */
function handleKey(event: KeyboardEvent, model: Model, commands: Commands): void {
  const { lines, byId } = model.tree.peek();
  const current = focusedLine.peek() === null ? undefined : byId.get(focusedLine.peek() ?? "");
  const currentIndex = current === undefined ? -1 : lines.indexOf(current);
  const focusLine = (index: number): void => {
    const line = lines[Math.max(0, Math.min(lines.length - 1, index))];
    if (line === undefined) return;
    focusedLine.value = line.id;
    commands.scrollToLine(line);
  };
  const setOpen = (open: boolean): boolean => {
    if (current === undefined || !current.canCollapse || current.isOpen === open) return false;
    toggleCollapsed(current.id);
    return true;
  };
  switch (event.key) {
    case "ArrowDown": focusLine(currentIndex + 1); break;
    case "ArrowUp": focusLine(currentIndex - 1); break;
    case "Home": focusLine(0); break;
    case "End": focusLine(lines.length - 1); break;
    case "ArrowRight": if (!setOpen(true)) focusLine(currentIndex + 1); break;
    case "ArrowLeft": if (!setOpen(false) && current !== undefined && current.parent >= 0) focusLine(current.parent); break;
    case "Enter":
    case " ": if (current?.canCollapse) toggleCollapsed(current.id); break;
    case "p": if (current?.kind === "track") togglePin(current.id); break;
    default: return;
  }
  event.preventDefault();
  event.stopPropagation();
}
