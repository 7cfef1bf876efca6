// Select whether device work launched before the trace started is counted.
import { useOption } from "./url_options";
import { Select } from "../widgets/select";

const CHOICES = [["keep", "included"], ["drop", "excluded"]] as const;
type CarryOverChoice = "keep" | "drop";

export function useCarryOver() {
  return useOption<CarryOverChoice>("carry_over", ["keep", "drop"]);
}

interface Props {
  value: CarryOverChoice;
  onChange: (value: CarryOverChoice) => void;
}

export function CarryOverSelect({ value, onChange }: Props) {
  return (
    <Select
      label="Carry-over"
      value={value}
      choices={CHOICES}
      onChange={(next) => { onChange(next as CarryOverChoice); }}
    />
  );
}
