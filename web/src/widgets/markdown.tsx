// Subset of Markdown for rule documentation: headings, lists, code, paragraphs. No HTML.
import { Prose } from "./prose";

export type Block =
  | { kind: "heading" | "paragraph" | "code"; text: string }
  | { kind: "list"; items: string[] };

/** Parse text into blocks. */
export function parseMarkdown(text: string): Block[] {
  const parsed: Block[] = [];
  let code: string[] | null = null;
  let openBlock: Block | null = null;
  for (const line of text.split("\n")) {
    if (/^\s*```/.test(line)) {
      if (code !== null) parsed.push({ kind: "code", text: code.join("\n") });
      code = code === null ? [] : null;
      openBlock = null;
    } else if (code !== null) {
      code.push(line);
    } else if (line.trim() === "") {
      openBlock = null;
    } else if (/^#+ /.test(line)) {
      parsed.push({ kind: "heading", text: line.replace(/^#+ /, "") });
      openBlock = null;
    } else if (/^\s*([-*]|\d+\.) /.test(line)) {
      const item = line.replace(/^\s*([-*]|\d+\.) /, "");
      if (openBlock?.kind === "list") openBlock.items.push(item);
      else parsed.push((openBlock = { kind: "list", items: [item] }));
    } else if (openBlock?.kind === "list") {
      openBlock.items.push(`${openBlock.items.pop() ?? ""} ${line.trim()}`);
    } else if (openBlock?.kind === "paragraph") {
      openBlock.text += ` ${line.trim()}`;
    } else {
      parsed.push((openBlock = { kind: "paragraph", text: line.trim() }));
    }
  }
  if (code !== null) parsed.push({ kind: "code", text: code.join("\n") });
  return parsed;
}

export function Markdown({ text }: { text: string }) {
  return <div class="markdown">{parseMarkdown(text).map((block, index) => <BlockView key={index} block={block} />)}</div>;
}

function BlockView({ block }: { block: Block }) {
  switch (block.kind) {
    case "heading":
      return <h3>{block.text}</h3>;
    case "code":
      return <pre class="code">{block.text}</pre>;
    case "list":
      return <ul>{block.items.map((item, index) => <li key={index}><Prose text={item} /></li>)}</ul>;
    case "paragraph":
      return <p><Prose text={block.text} /></p>;
  }
}
