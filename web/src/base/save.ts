// Downloads.

/** Offer a file for download. */
export function save(name: string, content: Blob): void {
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(content);
  anchor.download = name.replaceAll(/[^\w.-]+/g, "_").slice(0, 120);
  anchor.click();
  setTimeout(() => {
    URL.revokeObjectURL(anchor.href);
  }, 10_000);
}

type Value = string | number | boolean | null;

/** Format rows as CSV (RFC 4180). Values that a spreadsheet would evaluate get a leading apostrophe. */
export function csv(header: string[], rows: Value[][]): string {
  return [header, ...rows].map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
}

function field(value: Value): string {
  if (value === null) return "";
  if (typeof value !== "string") return String(value);
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
