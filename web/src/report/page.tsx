// Page of the report: header, contents, verdict and sections.
import type { Report } from "../api/report";
import { dark, toggleTheme } from "../base/theme";
import { Notice } from "../widgets/resource_view";
import { DeathView, VerdictView } from "../widgets/verdict";
import { Stuck } from "../widgets/stuck";
import { Contents } from "./contents";
import { SectionView } from "./section";

export function Page({ report }: { report: Report }) {
  return (
    <>
      <a class="skip" href="#verdict">Skip to the verdict</a>
      <header class="top">
        <div>
          <h1>Profiling report</h1>
          <p class="run">{report.name}</p>
        </div>
        <div class="tools">
          <button type="button" onClick={() => { window.print(); }}>Print</button>
          <button type="button" onClick={toggleTheme} aria-pressed={dark.value}>
            {dark.value ? "Light" : "Dark"} theme
          </button>
        </div>
      </header>
      <div class="columns">
        <Contents sections={report.sections} />
        <main>
          <Head report={report} />
          <Notice sentences={report.verdict.doubts} id="doubts" />
          <DeathView death={report.verdict.death} />
          {report.verdict.stuck === null ? null : <Stuck account={report.verdict.stuck} />}
          <VerdictView verdict={report.verdict} />
          {report.sections.map((section) => (
            <SectionView key={section.id} section={section} level={2} />
          ))}
          <footer>
            Created by stepscope {report.version} on {report.made_at}.
          </footer>
        </main>
      </div>
    </>
  );
}

function Head({ report }: { report: Report }) {
  return (
    <div class="head">
      {report.command === "" ? null : <p><code>{report.command}</code></p>}
      <p class={report.in_progress ? "state live" : "state"}>
        {report.in_progress
          ? `Job in progress: this report covers it until ${report.until}.`
          : `This report covers the run until ${report.until}.`}
      </p>
      <p>{report.about}</p>
      <p class="muted">Run id: <code>{report.run_id}</code></p>
      <p class="muted">{report.notice}</p>
      {report.notes.map((note) => <p key={note} class="text warning">{note}</p>)}
    </div>
  );
}
