// Frames of a Python stack, each a link to its source.
import { openSource, parseFrame } from "../state/source_location";

const MAX_FRAME_LENGTH = 400;

export function StackFrames({ frames, label }: { frames: readonly string[]; label: string }) {
  return (
    <ol class="frames" aria-label={label}>
      {frames.map((frame, depth) => {
        const location = parseFrame(frame);
        const text = frame.slice(0, MAX_FRAME_LENGTH);
        return (
          <li key={depth}>
            {location === null ? text : (
              <button type="button" onClick={() => { openSource(location.file, location.line); }}>{text}</button>
            )}
          </li>
        );
      })}
    </ol>
  );
}
