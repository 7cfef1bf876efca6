// What a row is called in the address: its name, where that is short enough for one.
const LONGEST = 120;

/** A key of some texts that together name a row. */
export function rowKey(...texts: (string | number | null)[]): string {
  const whole = texts.map((text) => text ?? "").join(" ");
  return whole.length <= LONGEST ? whole : `${whole.slice(0, LONGEST / 2)}~${hash(whole)}`;
}

/** FNV-1a, 32 bits. */
function hash(text: string): string {
  let value = 0x811c9dc5;
  for (let place = 0; place < text.length; place += 1) {
    value = Math.imul(value ^ text.charCodeAt(place), 0x01000193);
  }
  return (value >>> 0).toString(36);
}
