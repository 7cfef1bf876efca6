// Short ids for URLs.

/** Hash an id to 31 bits in base 36. */
export function shortId(id: string): string {
  let hash = 0x811c9dc5;
  for (let index = 0; index < id.length; index++) {
    hash = Math.imul(hash ^ id.charCodeAt(index), 0x01000193);
  }
  return ((hash ^ (hash >>> 15)) & 0x7fffffff).toString(36);
}
