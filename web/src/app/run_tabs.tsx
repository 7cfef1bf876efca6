// The runs that are open: one is on screen, the others a click away.
import { X } from "lucide";

import { link, openRuns, run, screen } from "../state/url";
import { Icon } from "../widgets/icon";

export function RunTabs() {
  const shown = run.value;
  if (openRuns.value.length === 0) return <p class="title">Jobs</p>;
  return (
    <ul class="run-tabs" aria-label="Open runs">
      {openRuns.value.map((id) => {
        const rest = openRuns.value.filter((each) => each !== id);
        const next = id === shown ? (rest[0] ?? null) : shown;
        const free = { from: null, to: null };
        return (
          <li key={id} class={id === shown ? "shown" : ""}>
            <a
              href={link(screen.value === "" ? "overview" : screen.value, { run: id, open: openRuns.value, ...free })}
              aria-current={id === shown ? "true" : undefined}
              title={id}
            >
              {id}
            </a>
            <a
              class="close"
              href={link(next === null ? "" : screen.value, { run: next, open: rest.length > 1 ? rest : null, ...free })}
              aria-label={`Close ${id}`}
            >
              <Icon icon={X} size={14} />
            </a>
          </li>
        );
      })}
    </ul>
  );
}
