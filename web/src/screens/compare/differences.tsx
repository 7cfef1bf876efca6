// Differences of hardware, model, batch and software that make two runs hard to compare.
import type { ContractTerms } from "../../api/views";
import { MISSING } from "../../base/quantities";
import { elideMiddle } from "../../base/text";

const MAX_VALUE = 48;
/** Value that stands for a long list, and tells a reader nothing. */
const DIGEST = /\bdigest [0-9a-f]+$/;

export function Differences({ terms }: { terms: ContractTerms[] }) {
  const differences = terms.flatMap((group) => group.differences.filter(({ standing }) => standing === "different"));
  if (differences.length === 0) return null;
  return (
    <ul class="differences" aria-label="Different in the two runs" data-testid="compare-differences">
      {differences.map((term) => {
        const values = [term.base ?? MISSING, term.other ?? MISSING];
        return (
          <li key={term.name} title={`${term.name}: ${values.join(" → ")}`}>
            <b>{term.name}</b> {values.some((value) => DIGEST.test(value)) ? "differ" : values.map((value) => elideMiddle(value, MAX_VALUE)).join(" → ")}
          </li>
        );
      })}
    </ul>
  );
}
