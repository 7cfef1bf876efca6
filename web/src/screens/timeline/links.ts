// Links of a slice as arrows: from what caused something to what it caused.
import type { Linked, SliceView } from "../../api/views";
import type { Arrow, ArrowKind, Placed } from "../../canvas/scene";

const KINDS: Partial<Record<Linked["relation"], { kind: ArrowKind; outward: boolean }>> = {
  launches: { kind: "launch", outward: true },
  "launched by": { kind: "launch", outward: false },
  backward: { kind: "gradient", outward: true },
  forward: { kind: "gradient", outward: false },
};
/** More arrows would be a cloth. */
const MOST = 200;

/** What a link's relation says, in words for the reader. */
export const RELATIONS: Record<Linked["relation"], string> = {
  launches: "launches",
  "launched by": "launched by",
  operator: "part of the operator",
  backward: "its gradient is computed by",
  forward: "computes the gradient of",
  parent: "within",
  "captured by": "captured by",
};

export function placedSlice(slice: SliceView): Placed {
  const { track, event, row, after_ns, duration_ns, name } = slice;
  return { track, event, row, after_ns, duration_ns, name };
}

export function placedLink(link: Linked): Placed {
  const { track, event, row, after_ns, duration_ns, name } = link;
  return { track, event, row, after_ns, duration_ns, name };
}

const made = new WeakMap<SliceView, Arrow[]>();

export function arrowsOf(slice: SliceView | null): Arrow[] {
  if (slice === null) return [];
  const known = made.get(slice);
  if (known !== undefined) return known;
  const own = placedSlice(slice);
  const arrows: Arrow[] = [];
  for (const link of slice.links) {
    const found = KINDS[link.relation];
    if (found === undefined || arrows.length >= MOST) continue;
    const other = placedLink(link);
    arrows.push(found.outward
      ? { kind: found.kind, from: own, to: other }
      : { kind: found.kind, from: other, to: own });
  }
  made.set(slice, arrows);
  return arrows;
}
