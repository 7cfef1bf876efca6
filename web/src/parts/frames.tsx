// Frames of a Python stack, each a way to its place in the source.
import { openSource, placeOf } from "../state/source";

const LONGEST = 400;

export function Frames({ frames, label }: { frames: readonly string[]; label: string }) {
  return (
    <ol class="frames" aria-label={label}>
      {frames.map((frame, depth) => {
        const place = placeOf(frame);
        const text = frame.slice(0, LONGEST);
        return (
          <li key={depth}>
            {place === null ? text : (
              <button type="button" onClick={() => { openSource(place.file, place.line); }}>{text}</button>
            )}
          </li>
        );
      })}
    </ol>
  );
}
