// Stack frame; opens the source if its location is known.
import { displayText } from "../../canvas/text";
import { openSource, parseFrame } from "../../state/source_location";

export function StackFrame({ text }: { text: string }) {
  const location = parseFrame(text);
  const content = <bdi>{displayText(text, 500)}</bdi>;
  if (location === null) return <span class="tl-frame">{content}</span>;
  return (
    <button type="button" class="tl-frame" title="Show source" onClick={() => { openSource(location.file, location.line); }}>
      {content}
    </button>
  );
}
