// Command that prints what a screen shows.

/** Quote a word for a POSIX shell, if it needs that. */
export function quoteWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

interface Shown {
  location: string;
  /** View of the screen; undefined for one of several runs. */
  view: string | undefined;
  /** Run that this one is compared with. */
  base: string | null;
  range: { from: string | null; to: string | null };
}

/** Return the command of a screen. */
export function commandOf({ location, view, base, range }: Shown): string {
  if (base !== null) return ["stepscope", "compare", base, location].map(quoteWord).join(" ");
  const words = ["stepscope", "show", location, view ?? "overview"];
  for (const [option, ns] of Object.entries(range)) if (ns !== null) words.push(`--${option}`, `${ns}ns`);
  return words.map(quoteWord).join(" ");
}
