// Text with inline code in backticks.
import { createContext, type ComponentChildren } from "preact";
import { useContext } from "preact/hooks";

/** Draws what is not code; with source lines as links where sources can be shown. */
export const PlainText = createContext<(text: string) => ComponentChildren>((text) => text);

export function Prose({ text }: { text: string }) {
  const draw = useContext(PlainText);
  return <>{text.split(/`([^`]+)`/).map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : draw(part)))}</>;
}
