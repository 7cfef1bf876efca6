// Select whether device work launched before the trace started is counted.
import type { JSX } from "preact";

import { Select } from "../widgets/select";
import { useOption } from "./url_options";

const CHOICES = [["keep", "included"], ["drop", "excluded"]] as const;
type CarryOver = "keep" | "drop";

/** Return the choice and its control. */
export function useCarryOver(): [CarryOver, JSX.Element] {
  const [value, setValue] = useOption<CarryOver>("carry_over", ["keep", "drop"]);
  return [value, <Select key="carry-over" label="Carry-over" value={value} choices={CHOICES} onChange={setValue} />];
}
