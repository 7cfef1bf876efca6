// Kinds of time on the critical path, with the number of their colour on every screen.
const COLOURS: Record<string, number> = {
  computation: 0,
  "launching work": 1,
  "fetching batches": 2,
  "waiting for a late rank": 3,
  communication: 4,
  "waiting for the device": 5,
  "not explained": 6,
  Python: 7,
  copies: 8,
  // Kinds of watched runs, which launch no work that they know of.
  checkpoints: 1,
  evaluation: 5,
  "starting workers": 3,
  "handing over batches": 8,
};

/** Number of the colour of a kind of time: of the series of the palette; 8 is a light shade of 2. */
export function pathColour(kind: string): number {
  return COLOURS[kind] ?? 6;
}
