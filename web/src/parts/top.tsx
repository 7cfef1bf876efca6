// How many rows of a long list are asked for.
import { useOption } from "./options";
import { count } from "../base/quantities";
import { Choice } from "../widgets/choice";

const COUNTS = ["500", "50", "5000", "0"] as const;
type Count = (typeof COUNTS)[number];

export function useTop(): [Count, (value: Count) => void] {
  return useOption("top", COUNTS);
}

export function TopChoice({ value, onChoose }: { value: Count; onChoose: (value: Count) => void }) {
  const choices = [...COUNTS].sort((a, b) => (Number(a) || Infinity) - (Number(b) || Infinity));
  return (
    <Choice
      label="Rows"
      value={value}
      choices={choices.map((each) => [each, each === "0" ? "all" : `largest ${count(Number(each))}`] as const)}
      onChoose={(next) => { onChoose(next as Count); }}
    />
  );
}

/** What a table says of rows that were not asked for. */
export function leftOut(shown: number, all: number): string | null {
  return shown < all ? `the largest of ${count(all)}` : null;
}
