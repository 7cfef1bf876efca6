// What stands around every screen: where one can go, what is on screen, and what can be done.
import { ChevronsLeft, ChevronsRight, Moon, Sun } from "lucide";
import { signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

import { dark, toggleTheme } from "../base/theme";
import { gone } from "../state/live";
import { link, run, screen } from "../state/url";
import { Empty, Refused, Waiting } from "../widgets/answer";
import { Icon } from "../widgets/icon";
import { Capture } from "./capture";
import { RangeChip } from "./range_chip";
import { RunTabs } from "./run_tabs";
import { GROUPS, JOBS, SCREENS, type Screen } from "./screens";
import { Source } from "./source";

const narrow = signal(window.matchMedia("(max-width: 1100px)").matches);

export function Shell() {
  const shown = SCREENS.find((each) => each.name === screen.value) ?? JOBS;
  const known = shown.name === screen.value;
  useEffect(() => {
    document.title = `${shown.title}${run.value === null ? "" : ` · ${run.value}`} · stepscope`;
  }, [shown, run.value]);
  return (
    <div class={narrow.value ? "shell narrow" : "shell"}>
      <a class="skip" href="#main">Skip to the screen</a>
      <Navigation shown={shown} />
      <header class="top">
        <RunTabs />
        <div class="tools">
          <RangeChip />
          <Capture />
          <button
            type="button"
            class="quiet"
            onClick={toggleTheme}
            aria-label={dark.value ? "Light theme" : "Dark theme"}
            title={dark.value ? "Light theme" : "Dark theme"}
          >
            <Icon icon={dark.value ? Sun : Moon} />
          </button>
        </div>
      </header>
      <main id="main" class={`screen ${shown.name === "" ? "jobs" : shown.name}`} tabIndex={-1}>
        {gone.value ? (
          <Refused text="This run has disappeared from its place; what is shown was read before." />
        ) : null}
        {known ? <Body of={shown} /> : <Empty title="No such screen" text="choose one at the left" />}
      </main>
      <Source />
    </div>
  );
}

function Navigation({ shown }: { shown: Screen }) {
  return (
    <nav class="side" aria-label="Screens">
      <a class="brand" href={link(JOBS.name)} title="All jobs">
        <img src="/icon.svg" alt="" width="26" height="26" /> <b>stepscope</b>
      </a>
      <Entry of={JOBS} shown={shown} />
      {run.value === null ? null : GROUPS.map(([group, words]) => (
        <div key={group} role="group" aria-label={words}>
          <p class="group" aria-hidden="true">{words}</p>
          {SCREENS.filter((each) => each.group === group).map((each) => (
            <Entry key={each.name} of={each} shown={shown} />
          ))}
        </div>
      ))}
      <button
        type="button"
        class="quiet fold"
        aria-expanded={!narrow.value}
        aria-label={narrow.value ? "Show the names of the screens" : "Fold to icons"}
        onClick={() => { narrow.value = !narrow.value; }}
      >
        <Icon icon={narrow.value ? ChevronsRight : ChevronsLeft} />
        <span>{narrow.value ? "Names" : "Fold"}</span>
      </button>
    </nav>
  );
}

function Entry({ of, shown }: { of: Screen; shown: Screen }) {
  return (
    <a
      class="entry"
      href={link(of.name)}
      aria-current={of === shown ? "page" : undefined}
      title={of.title}
    >
      <Icon icon={of.icon} /> <span>{of.title}</span>
    </a>
  );
}

const loaded = new Map<string, ComponentType>();

/** A screen's script is fetched when it is first shown. */
function Body({ of }: { of: Screen }) {
  const [, setReady] = useState<string | null>(null); // the list of jobs has an empty name
  const [failed, setFailed] = useState(false);
  const Found = loaded.get(of.name);
  useEffect(() => {
    if (Found !== undefined) return;
    setFailed(false);
    of.load().then(
      (module) => {
        loaded.set(of.name, module.default);
        setReady(of.name);
      },
      () => { setFailed(true); },
    );
  }, [of, Found]);
  if (of.name !== "" && run.value === null) {
    return <Empty title="No run is open" text="choose one from the list of jobs" />;
  }
  if (failed) return <Refused text="This screen could not be loaded. Is `stepscope ui` running?" />;
  // A run's screens start afresh with another run.
  return Found === undefined ? <Waiting /> : <Found key={`${of.name} ${run.value ?? ""}`} />;
}
