// What a row is called in the address: its name, where that is short enough for one.
const MAX_LENGTH = 120;

/** A key of some texts that together name a row. */
export function rowKey(...texts: (string | number | null)[]): string {
  const text = texts.map((text) => text ?? "").join(" ");
  return text.length <= MAX_LENGTH ? text : `${text.slice(0, MAX_LENGTH / 2)}~${hash(text)}`;
}

/** FNV-1a, 32 bits. */
function hash(text: string): string {
  let value = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1) {
    value = Math.imul(value ^ text.charCodeAt(index), 0x01000193);
  }
  return (value >>> 0).toString(36);
}
