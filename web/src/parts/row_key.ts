// Key of a row in the URL: its name, or a shortened name with a hash.
const MAX_LENGTH = 120;

/** Build a key from the texts that identify a row. */
export function rowKey(...parts: (string | number | null)[]): string {
  const text = parts.map((part) => part ?? "").join(" ");
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
