// Names of annotations, for suggestions.
import type { AnnotationsView } from "../api/views";

/** Return distinct names in the order of the payload. */
export function annotationNames(payload: AnnotationsView): string[] {
  return [...new Set(payload.sources.flatMap((source) => source.annotations.map((row) => row.name)))];
}
