// Whether device work that was launched before the recording began counts.
import { useOption } from "./options";
import { Choice } from "../widgets/choice";

const CHOICES = [["keep", "counts"], ["drop", "left out"]] as const;
type CarryOverChoice = "keep" | "drop";

export function useCarryOver() {
  return useOption<CarryOverChoice>("carry_over", ["keep", "drop"]);
}

interface Props {
  value: CarryOverChoice;
  onChoose: (value: CarryOverChoice) => void;
}

export function CarryOver({ value, onChoose }: Props) {
  return (
    <Choice
      label="Work launched before"
      value={value}
      choices={CHOICES}
      onChoose={(next) => { onChoose(next as CarryOverChoice); }}
    />
  );
}
