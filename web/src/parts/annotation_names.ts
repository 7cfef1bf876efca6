// Names of annotations to choose from.
import type { AnnotationsView } from "../api/views";

/** Every name once, in the order of the payload. */
export function annotationNames(payload: AnnotationsView): string[] {
  return [...new Set(payload.sources.flatMap((source) => source.annotations.map((row) => row.name)))];
}
