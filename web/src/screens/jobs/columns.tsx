// Choice of the columns of the list of runs, which the browser remembers.
import type { Signal } from "@preact/signals";
import { Columns3 } from "lucide";

import type { JobRow } from "../../api/views";
import { remembered } from "../../base/remembered";
import type { Field } from "../../widgets/fields";
import { Menu } from "../../widgets/menu";

type Visibility = "shown" | "hidden";

/** Columns that are always shown. */
const FIXED = ["chosen", "name"];
/** Columns that the reader has to choose; the last ones are shown where there is room. */
const HIDDEN_AT_FIRST = [
  "id", "rank_count", "gpu_count", "size_bytes", "first_step_ns", "working_directory", "git_revision",
  ...(window.matchMedia("(min-width: 1700px)").matches ? [] : ["host", "notes", "created_ms"]),
];

const choices = new Map<string, Signal<Visibility>>();

function choiceOf(name: string): Signal<Visibility> {
  let choice = choices.get(name);
  if (choice === undefined) {
    choice = remembered<Visibility>(`jobs.${name}`, HIDDEN_AT_FIRST.includes(name) ? ["hidden", "shown"] : ["shown", "hidden"]);
    choices.set(name, choice);
  }
  return choice;
}

/** Columns in which any of the runs has a value, and those that are always shown. */
export function filledColumns(fields: readonly Field<JobRow>[], jobs: readonly JobRow[]): Field<JobRow>[] {
  const hasValue = (field: Field<JobRow>): boolean => jobs.some((job) => ![null, ""].includes(field.value(job) as string | null));
  return fields.filter((field) => FIXED.includes(field.name) || hasValue(field));
}

/** Those that the reader chose. */
export function visibleColumns(fields: readonly Field<JobRow>[]): Field<JobRow>[] {
  return fields.filter(({ name }) => FIXED.includes(name) || choiceOf(name).value === "shown");
}

export function ColumnChoice({ fields }: { fields: readonly Field<JobRow>[] }) {
  return (
    <Menu icon={Columns3} label="Columns" class="action" hasText>
      {() => fields.filter(({ name }) => !FIXED.includes(name)).map(({ name, title }) => {
        const choice = choiceOf(name);
        return (
          <label key={name} class="choice">
            <input type="checkbox" checked={choice.value === "shown"} onChange={(event) => { choice.value = event.currentTarget.checked ? "shown" : "hidden"; }} />
            {" "}{title}
          </label>
        );
      })}
    </Menu>
  );
}
