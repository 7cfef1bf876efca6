// Links of a slice as arrows from cause to effect.
import type { EventDetails, LinkedEvent } from "../../api/views";
import type { Arrow, ArrowKind, SliceRef } from "../../canvas/scene";

const ARROW_KINDS: Partial<Record<LinkedEvent["relation"], { kind: ArrowKind; isOutgoing: boolean }>> = {
  launches: { kind: "launch", isOutgoing: true },
  "launched by": { kind: "launch", isOutgoing: false },
  backward: { kind: "gradient", isOutgoing: true },
  forward: { kind: "gradient", isOutgoing: false },
};
/** More arrows would be unreadable. */
const MAX_ARROWS = 200;

/** Labels of relations. */
export const RELATION_LABELS: Record<LinkedEvent["relation"], string> = {
  launches: "launches",
  "launched by": "launched by",
  operator: "part of the operator",
  backward: "its gradient is computed by",
  forward: "computes the gradient of",
  parent: "within",
  "captured by": "captured by",
  "piece of": "time of the event",
  "waits for": "waits for",
  "holds up": "holds up",
};

export function sliceRef(slice: EventDetails): SliceRef {
  const { track, event, row, after_ns, duration_ns, name } = slice;
  return { track, event, row, after_ns, duration_ns, name };
}

export function linkRef(link: LinkedEvent): SliceRef {
  const { track, event, row, after_ns, duration_ns, name } = link;
  return { track, event, row, after_ns, duration_ns, name };
}

const arrowsBySlice = new WeakMap<EventDetails, Arrow[]>();

export function arrowsOf(slice: EventDetails | null): Arrow[] {
  if (slice === null) return [];
  const cached = arrowsBySlice.get(slice);
  if (cached !== undefined) return cached;
  const source = sliceRef(slice);
  const arrows: Arrow[] = [];
  for (const link of slice.links) {
    const kind = ARROW_KINDS[link.relation];
    if (kind === undefined || arrows.length >= MAX_ARROWS) continue;
    const target = linkRef(link);
    arrows.push(kind.isOutgoing
      ? { kind: kind.kind, from: source, to: target }
      : { kind: kind.kind, from: target, to: source });
  }
  arrowsBySlice.set(slice, arrows);
  return arrows;
}
