// Tabs of the open runs.
import { X } from "lucide";

import { link, openRuns, run, screen } from "../state/url";
import { Icon } from "../widgets/icon";

export function RunTabs() {
  const current = run.value;
  if (openRuns.value.length === 0) return <p class="title">Jobs</p>;
  return (
    <ul class="run-tabs" aria-label="Open runs">
      {openRuns.value.map((id) => {
        const remaining = openRuns.value.filter((openRun) => openRun !== id);
        const next = id === current ? (remaining[0] ?? null) : current;
        const fullRange = { from: null, to: null };
        return (
          <li key={id} class={id === current ? "shown" : ""}>
            <a
              href={link(screen.value === "" ? "overview" : screen.value, { run: id, open: openRuns.value, ...fullRange })}
              aria-current={id === current ? "true" : undefined}
              title={id}
            >
              {id}
            </a>
            <a
              class="close"
              href={link(next === null ? "" : screen.value, { run: next, open: remaining.length > 1 ? remaining : null, ...fullRange })}
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
