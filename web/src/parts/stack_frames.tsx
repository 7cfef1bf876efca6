// Frames of a Python stack, each a link to its source.
import { displayText } from "../canvas/text";
import { openSource, parseFrame } from "../state/source_location";

const MAX_FRAME_LENGTH = 500;

export function StackFrames({ frames, label }: { frames: readonly string[]; label: string }) {
  return (
    <ol class="frames" aria-label={label}>
      {frames.map((frame, depth) => {
        const location = parseFrame(frame);
        const text = <bdi>{displayText(frame, MAX_FRAME_LENGTH)}</bdi>;
        return (
          <li key={depth}>
            {location === null ? text : (
              <button type="button" title="Show source" onClick={() => { openSource(location.file, location.line); }}>{text}</button>
            )}
          </li>
        );
      })}
    </ol>
  );
}
