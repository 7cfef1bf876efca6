// A frame of a stack: where it can be found, it opens the source there.
import { shown } from "../../canvas/text";
import { openSource, placeOf } from "../../state/source";

export function Frame({ text }: { text: string }) {
  const place = placeOf(text);
  const words = <bdi>{shown(text, 500)}</bdi>;
  if (place === null) return <span class="tl-frame">{words}</span>;
  return (
    <button type="button" class="tl-frame" title="Show the source" onClick={() => { openSource(place.file, place.line); }}>
      {words}
    </button>
  );
}
