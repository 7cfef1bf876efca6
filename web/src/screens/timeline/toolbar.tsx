// Toolbar of the timeline: search, jump, align and view options.
import {
  AlignStartVertical, ArrowLeftToLine, ArrowRightToLine, Image, Keyboard, Maximize2, Minimize2,
  Radio, Route, Timer,
} from "lucide";
import { useState } from "preact/hooks";

import { change, countOf, duration } from "../../base/quantities";
import { revision } from "../../state/fetch";
import { Icon } from "../../widgets/icon";
import { IconButton } from "../../widgets/icon_button";
import { Prose } from "../../widgets/prose";
import { Select } from "../../widgets/select";
import type { Commands } from "./commands";
import { exportPng } from "./export_png";
import { toggleHelp } from "./help";
import { ViewChoices } from "./legend";
import { loadError } from "./loader";
import type { Model } from "./model";
import { SearchBox, type Search } from "./search";
import { alignedStep, parseNumber, isRulerRelative, setAlignedStep, setBandGroup, setRulerRelative, showsPath, togglePath } from "./url_state";

interface Props {
  model: Model;
  commands: Commands;
  search: Search;
}

export function Toolbar({ model, commands, search }: Props) {
  const ranks = model.view.value.steps.filter((rankSteps) => rankSteps.numbers.length > 0);
  return (
    <div class="tl-toolbar" role="toolbar" aria-label="Timeline">
      <SearchBox search={search} />
      {ranks.length === 0 ? null : <StepJump model={model} commands={commands} />}
      {ranks.length < 2 ? null : <AlignRanks model={model} commands={commands} />}
      {model.view.value.critical_path === null ? null : <PathSwitch />}
      <span class="tl-spacer" />
      {loadError.value === null ? null : <span class="tl-error" role="alert">{loadError.value}</span>}
      <QualityBadge model={model} />
      <ViewButtons model={model} commands={commands} />
    </div>
  );
}

/** Badge with quality notes. */
function QualityBadge({ model }: { model: Model }) {
  const { quality, notes, doubts, recording_end: recordingEnd, rounding } = model.view.value;
  const limitations = [...doubts, recordingEnd, rounding].filter((text) => text !== null);
  const texts = [...limitations, ...quality.map((note) => note.sentence), ...notes];
  if (texts.length === 0) return null;
  return (
    <details class="tl-badge quality">
      <summary>▲ {countOf(texts.length, "note")}</summary>
      <ul>
        {texts.map((text) => <li key={text}><Prose text={text} /></li>)}
      </ul>
    </details>
  );
}

function StepJump({ model, commands }: { model: Model; commands: Commands }) {
  const [errorText, setErrorText] = useState("");
  const ranks = model.view.value.steps.filter((rankSteps) => rankSteps.numbers.length > 0);
  const band = model.band.value;
  const outliers = band?.outliers.length ?? 0;
  const first = band?.numbers[0] ?? 0;
  const last = band?.numbers.at(-1) ?? 0;
  const jump = (text: string): void => {
    const step = parseNumber(text);
    setErrorText(step === null || commands.jumpToStep(step) ? "" : `step ${step} not found`);
  };
  return (
    <div class="tl-group">
      <label class="choice">
        <span>Step</span>
        <input
          type="number"
          class="tl-step"
          placeholder={first === last ? String(first) : `${first}–${last}`}
          min={first}
          max={last}
          data-testid="timeline-jump"
          aria-label="Jump to step"
          onChange={(event) => { jump(event.currentTarget.value); }}
          onKeyDown={(event) => { if (event.key === "Enter") jump(event.currentTarget.value); }}
        />
      </label>
      {ranks.length < 2 ? null : (
        <Select
          label="of"
          value={band?.group ?? ""}
          choices={ranks.map((rankSteps) => [rankSteps.group, rankSteps.title] as const)}
          onChange={setBandGroup}
        />
      )}
      {outliers === 0 ? null : (
        <>
          <IconButton icon={ArrowLeftToLine} label="Previous outlier step" shortcut="Shift+O" onClick={() => { commands.jumpToOutlier(-1); }} />
          <button type="button" class="quiet" title="Next outlier step (O)" onClick={() => { commands.jumpToOutlier(1); }}>
            ▲ {countOf(outliers, "outlier")} <Icon icon={ArrowRightToLine} size={15} />
          </button>
        </>
      )}
      <span role="status" class="muted">{errorText}</span>
    </div>
  );
}

function PathSwitch() {
  const isShown = showsPath.value;
  return (
    <button
      type="button"
      class={isShown ? "quiet on" : "quiet"}
      aria-pressed={isShown}
      data-testid="timeline-path"
      title="Show what determines the time of the steps, above all tracks"
      onClick={togglePath}
    >
      <Icon icon={Route} size={15} /> Critical path
    </button>
  );
}

function AlignRanks({ model, commands }: { model: Model; commands: Commands }) {
  const aligned = model.alignment.value;
  const isAligned = alignedStep.value !== null;
  const toggle = (): void => {
    const step = commands.stepInView();
    setAlignedStep(isAligned ? null : step);
    if (!isAligned && step !== null) commands.jumpToStep(step);
  };
  const maxShift = Math.max(0, ...(aligned?.ranks ?? []).map((rank) => Math.abs(rank.shift ?? 0)));
  const shiftTexts = aligned?.ranks.map(({ title, shift }) =>
    `${title}: ${shift === null ? "no such step" : change(shift, "ns")}`);
  return (
    <div class="tl-group">
      <button
        type="button"
        class={isAligned ? "quiet on" : "quiet"}
        aria-pressed={isAligned}
        data-testid="timeline-align"
        title="Shift ranks so that the step at the centre starts at the same position"
        onClick={toggle}
      >
        <Icon icon={AlignStartVertical} size={15} /> {isAligned ? "Aligned" : "Align ranks"}
      </button>
      {isAligned ? (
        <details class="tl-badge">
          <summary>
            {aligned === null ? `no rank has step ${alignedStep.value}` : `step ${aligned.step}, shifted by up to ${duration(maxShift)}`}
          </summary>
          <ul>{shiftTexts?.slice(0, 200).map((text) => <li key={text}>{text}</li>)}</ul>
        </details>
      ) : null}
    </div>
  );
}

function ViewButtons({ model, commands }: { model: Model; commands: Commands }) {
  const isGrowing = revision.value > 0 || model.followsEnd.value;
  return (
    <div class="tl-group">
      {isGrowing ? (
        <button
          type="button"
          class={model.followsEnd.value ? "quiet on" : "quiet"}
          aria-pressed={model.followsEnd.value}
          title="Keep the end of the run in view"
          onClick={() => {
            model.followsEnd.value = !model.followsEnd.value;
            if (model.followsEnd.value) commands.followEnd();
          }}
        >
          <Icon icon={Radio} size={15} /> Follow
        </button>
      ) : null}
      <IconButton
        icon={Timer}
        label="Ruler relative to the selection"
        title="Show ruler times relative to the selection"
        pressed={isRulerRelative.value}
        onClick={() => { setRulerRelative(!isRulerRelative.value); }}
      />
      <IconButton icon={Maximize2} label="Zoom to the selection" shortcut="F" onClick={commands.zoomToSelection} />
      <IconButton icon={Minimize2} label="Show the full run" shortcut="0" onClick={commands.showFullRun} />
      <ViewChoices model={model} />
      <IconButton icon={Image} label="Save as PNG" onClick={() => { exportPng(model); }} />
      <IconButton icon={Keyboard} label="Shortcuts and gestures" shortcut="?" onClick={toggleHelp} />
    </div>
  );
}
