// Keys of the rows of the tensors screen.
import type { RecordedTensor } from "../../api/views";
import { rowKey } from "../../parts/row_key";

/** Key of a tensor in the URL. */
export function tensorKey({ name, mode, rank }: Pick<RecordedTensor, "name" | "mode" | "rank">): string {
  return rowKey(name, mode, rank);
}
