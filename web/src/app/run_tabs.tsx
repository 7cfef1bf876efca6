// Tabs of the open runs.
import { X } from "lucide";

import { useRunName } from "../state/jobs";
import { link, openRuns, run, screen } from "../state/url";
import { Icon } from "../widgets/icon";

export function RunTabs() {
  if (openRuns.value.length === 0) return <p class="title">All runs</p>;
  return (
    <ul class="run-tabs" aria-label="Open runs">
      {openRuns.value.map((id) => <RunTab key={id} id={id} />)}
    </ul>
  );
}

function RunTab({ id }: { id: string }) {
  const name = useRunName(id).slice(0, 200);
  const current = run.value;
  const remaining = openRuns.value.filter((openRun) => openRun !== id);
  const next = id === current ? (remaining[0] ?? null) : current;
  const fullRange = { from: null, to: null };
  return (
    <li class={id === current ? "shown" : ""}>
      <a
        href={link(screen.value === "" ? "overview" : screen.value, { run: id, open: openRuns.value, ...fullRange })}
        aria-current={id === current ? "true" : undefined}
        title={id}
      >
        {name}
      </a>
      <a
        class="close"
        href={link(next === null ? "" : screen.value, { run: next, open: remaining.length > 1 ? remaining : null, ...fullRange })}
        aria-label={`Close ${name}`}
      >
        <Icon icon={X} size={14} />
      </a>
    </li>
  );
}
