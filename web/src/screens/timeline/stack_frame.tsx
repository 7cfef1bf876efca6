// A frame of a stack: where it can be found, it opens the source there.
import { displayText } from "../../canvas/text";
import { openSource, parseFrame } from "../../state/source_location";

export function StackFrame({ text }: { text: string }) {
  const location = parseFrame(text);
  const words = <bdi>{displayText(text, 500)}</bdi>;
  if (location === null) return <span class="tl-frame">{words}</span>;
  return (
    <button type="button" class="tl-frame" title="Show the source" onClick={() => { openSource(location.file, location.line); }}>
      {words}
    </button>
  );
}
