// Shell around every screen: navigation, run tabs and actions.
import { computed, signal } from "@preact/signals";
import { ChevronsLeft, ChevronsRight, CircleSlash, Moon, Sun } from "lucide";
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

import { count } from "../base/quantities";
import { sentence } from "../base/text";
import { dark, toggleTheme } from "../base/theme";
import { linkSourceLines } from "../parts/source_lines";
import { useWholeView } from "../state/fetch";
import { isRunDeleted } from "../state/live";
import { useRunName, useRunSummary } from "../state/jobs";
import { link, run, screen } from "../state/url";
import { areViewsKnown, describedViews } from "../state/views";
import { Icon } from "../widgets/icon";
import { IconButton } from "../widgets/icon_button";
import { PlainText, Prose } from "../widgets/prose";
import { EmptyState, ErrorNotice, Skeleton } from "../widgets/resource_view";
import { JobActions } from "./job_actions";
import { RangeChip } from "./range_chip";
import { RunTabs } from "./run_tabs";
import { GROUPS, JOBS, OF_ALL_RUNS, SCREENS, missingScreens, otherScreens, screenOf, type ScreenEntry } from "./screens";
import { ShareMenu } from "./share_menu";
import { SourceViewer } from "./source_viewer";

const entries = computed(() => [...SCREENS, ...otherScreens(describedViews.value)]);
/** Screens that show the verdict, or those of two runs. */
const HAS_VERDICT = ["overview", "compare"];
const narrow = signal(window.matchMedia("(max-width: 1100px)").matches);

export function Shell() {
  const target = screenOf(screen.value, entries.value);
  const current = target ?? JOBS;
  const isOfOneRun = run.value !== null && screen.value !== "compare";
  return (
    <div class={narrow.value ? "shell narrow" : "shell"}>
      {run.value === null ? <DocumentTitle parts={[current.title]} /> : <RunTitle id={run.value} screenTitle={current.title} />}
      <a class="skip" href="#main">Skip to content</a>
      <Navigation current={current} />
      <header class="top">
        <RunTabs />
        {run.value === null || HAS_VERDICT.includes(current.name) ? null : <VerdictLine key={current.name} id={run.value} />}
        <div class="tools">
          <RangeChip />
          <JobActions />
          <ShareMenu />
          <IconButton icon={dark.value ? Sun : Moon} label={dark.value ? "Light theme" : "Dark theme"} size={18} onClick={toggleTheme} />
        </div>
      </header>
      <main id="main" class={`screen ${current.name === "" ? "jobs" : current.name}`} tabIndex={-1}>
        {isRunDeleted.value ? (
          <ErrorNotice text="This run was deleted. The page shows data that was loaded before." />
        ) : null}
        {target !== undefined ? <PlainText.Provider value={isOfOneRun ? linkSourceLines : String}><ScreenBody target={target} /></PlainText.Provider> : areViewsKnown.value ? <EmptyState title="Screen not found" text="select a screen on the left" /> : <Skeleton />}
      </main>
      <SourceViewer />
    </div>
  );
}

function RunTitle({ id, screenTitle }: { id: string; screenTitle: string }) {
  return <DocumentTitle parts={[screenTitle, useRunName(id)]} />;
}

/** Verdict of the run, which leads to the overview; requested on each screen until it is stored. */
function VerdictLine({ id }: { id: string }) {
  const { headline, advice } = useRunSummary(id);
  if (headline === null) return <span class="verdict-line" />;
  return <a class="verdict-line" href={link("overview")} data-testid="verdict-line"><b>{headline}</b> {advice}</a>;
}

function DocumentTitle({ parts }: { parts: string[] }) {
  const title = [...parts, "stepscope"].join(" · ");
  useEffect(() => { document.title = title; }, [title]);
  return null;
}

function Navigation({ current }: { current: ScreenEntry }) {
  return (
    <nav class="side" aria-label="Screens">
      <a class="brand" href={link(JOBS.name)} title="All jobs">
        <img src="/icon.svg" alt="" width="26" height="26" /> <b>stepscope</b>
      </a>
      {OF_ALL_RUNS.map((entry) => <Entry key={entry.name} target={entry} current={current} />)}
      {run.value === null ? null : <RunEntries current={current} />}
      <button
        type="button"
        class="quiet collapse"
        aria-expanded={!narrow.value}
        aria-label={narrow.value ? "Expand the navigation" : "Collapse the navigation"}
        onClick={() => { narrow.value = !narrow.value; }}
      >
        <Icon icon={narrow.value ? ChevronsRight : ChevronsLeft} />
        <span>{narrow.value ? "Expand" : "Collapse"}</span>
      </button>
    </nav>
  );
}

/** Entries of the screens of a run; those without data are folded, with the reason. */
function RunEntries({ current }: { current: ScreenEntry }) {
  const { data } = useWholeView("recordings");
  const missing = missingScreens(entries.value, data?.not_recorded ?? []);
  const listed = entries.value.filter((entry) => !missing.has(entry));
  return (
    <>
      {GROUPS.map(([group, title]) => (
        <NavigationGroup key={group} title={title} entries={listed.filter((entry) => entry.group === group)} current={current} />
      ))}
      {missing.size === 0 ? null : <NotRecorded missing={missing} current={current} />}
    </>
  );
}

/** Folded screens without data by reason, which names the command that records them. */
function NotRecorded({ missing, current }: { missing: ReadonlyMap<ScreenEntry, string>; current: ScreenEntry }) {
  const reasons = [...new Set(missing.values())];
  return (
    <details class="not-recorded" open={missing.has(current) ? true : undefined}>
      <summary title={`Not recorded: ${count(missing.size)}`}>
        <Icon icon={CircleSlash} /> <span>Not recorded ({count(missing.size)})</span>
      </summary>
      {reasons.map((reason) => (
        <div key={reason} role="group" aria-label={reason}>
          {[...missing].filter(([, text]) => text === reason).map(([entry]) => <Entry key={entry.name} target={entry} current={current} title={`${entry.title}: ${reason}`} />)}
          <p><Prose text={sentence(reason)} /></p>
        </div>
      ))}
    </details>
  );
}

function NavigationGroup({ title, entries: members, current }: { title: string; entries: ScreenEntry[]; current: ScreenEntry }) {
  return members.length === 0 ? null : (
    <div role="group" aria-label={title}>
      <p class="group" aria-hidden="true">{title}</p>
      {members.map((entry) => <Entry key={entry.name} target={entry} current={current} />)}
    </div>
  );
}

function Entry({ target, current, title = target.title }: { target: ScreenEntry; current: ScreenEntry; title?: string }) {
  return (
    <a
      class="entry"
      href={link(target.name)}
      aria-current={target === current ? "page" : undefined}
      title={title}
    >
      <Icon icon={target.icon} /> <span>{target.title}</span>
    </a>
  );
}

const loaded = new Map<string, ComponentType>();

/** The script of a screen is loaded when the screen is first shown. */
function ScreenBody({ target }: { target: ScreenEntry }) {
  const [, setReady] = useState<string | null>(null); // the jobs screen has an empty name
  const [failed, setFailed] = useState(false);
  const Component = loaded.get(target.name);
  useEffect(() => {
    if (Component !== undefined) return;
    setFailed(false);
    target.load().then(
      (module) => {
        loaded.set(target.name, module.default);
        setReady(target.name);
      },
      () => { setFailed(true); },
    );
  }, [target, Component]);
  if (!OF_ALL_RUNS.includes(target) && run.value === null) {
    return <EmptyState title="No run selected" text="select a run from the list of jobs" />;
  }
  if (failed) return <ErrorNotice text="This screen failed to load. Is `stepscope ui` still running?" />;
  // A screen starts with fresh state for another run.
  return Component === undefined ? <Skeleton /> : <Component key={`${target.name} ${run.value ?? ""}`} />;
}
