// The little of Markdown that pages of rules use: headings, lists, code, paragraphs. No HTML.
import { Prose } from "./prose";

export type Block =
  | { kind: "heading" | "paragraph" | "code"; text: string }
  | { kind: "list"; items: string[] };

/** Blocks of a text, in order. */
export function blocks(text: string): Block[] {
  const found: Block[] = [];
  let code: string[] | null = null;
  let open: Block | null = null;
  for (const line of text.split("\n")) {
    if (/^\s*```/.test(line)) {
      if (code !== null) found.push({ kind: "code", text: code.join("\n") });
      code = code === null ? [] : null;
      open = null;
    } else if (code !== null) {
      code.push(line);
    } else if (line.trim() === "") {
      open = null;
    } else if (/^#+ /.test(line)) {
      found.push({ kind: "heading", text: line.replace(/^#+ /, "") });
      open = null;
    } else if (/^\s*([-*]|\d+\.) /.test(line)) {
      const item = line.replace(/^\s*([-*]|\d+\.) /, "");
      if (open?.kind === "list") open.items.push(item);
      else found.push((open = { kind: "list", items: [item] }));
    } else if (open?.kind === "list") {
      open.items.push(`${open.items.pop() ?? ""} ${line.trim()}`);
    } else if (open?.kind === "paragraph") {
      open.text += ` ${line.trim()}`;
    } else {
      found.push((open = { kind: "paragraph", text: line.trim() }));
    }
  }
  if (code !== null) found.push({ kind: "code", text: code.join("\n") });
  return found;
}

export function Markdown({ text }: { text: string }) {
  return <div class="markdown">{blocks(text).map((block, place) => <One key={place} block={block} />)}</div>;
}

function One({ block }: { block: Block }) {
  switch (block.kind) {
    case "heading":
      return <h3>{block.text}</h3>;
    case "code":
      return <pre class="code">{block.text}</pre>;
    case "list":
      return <ul>{block.items.map((item, place) => <li key={place}><Prose text={item} /></li>)}</ul>;
    case "paragraph":
      return <p><Prose text={block.text} /></p>;
  }
}
