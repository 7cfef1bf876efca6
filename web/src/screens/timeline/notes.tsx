// Notes on the timeline, which are stored with the run.
import { Trash2 } from "lucide";
import { useState } from "preact/hooks";

import type { Note } from "../../api/server";
import { exactTime } from "../../canvas/ticks";
import type { Span } from "../../canvas/viewport";
import { spanAround } from "../../canvas/viewport";
import { changeNotes, notes, notesError } from "../../state/notes";
import { IconButton } from "../../widgets/icon_button";
import type { Commands } from "./commands";
import type { Model } from "./model";
import { range } from "./url_state";

interface Props {
  model: Model;
  commands: Commands;
}

const NOTHING = { notes: [], views: [] };

/** Time that a new note is on: the range, else the selected slice, else the centre of the window. */
function subject(model: Model): { span: Span; text: string } {
  const selected = model.selected.value;
  const selectedRange = range.value;
  if (selectedRange !== null) return { span: selectedRange, text: "the selected range" };
  if (selected !== null) return { span: { from: selected.after_ns, to: selected.after_ns + selected.duration_ns }, text: "the selected slice" };
  const centre = Math.max(0, (model.span.value.from + model.span.value.to) / 2);
  return { span: { from: centre, to: centre }, text: "the centre of the view" };
}

export function Notes({ model, commands }: Props) {
  const [text, setText] = useState("");
  const { span, text: subjectText } = subject(model);
  const add = (): void => {
    if (text.trim() === "") return;
    const [from, to] = [Math.floor(span.from), Math.ceil(span.to)];
    setText("");
    void changeNotes({ add: { notes: [{ text: text.trim(), from_after_ns: from, to_after_ns: to > from ? to : null }], views: [] }, remove: NOTHING });
  };
  const show = (note: Note): void => {
    const to = note.to_after_ns ?? note.from_after_ns;
    const width = model.span.peek().to - model.span.peek().from;
    const shown = to > note.from_after_ns ? { from: note.from_after_ns, to } : { from: note.from_after_ns - width / 20, to: note.from_after_ns + width / 20 };
    commands.animateTo(spanAround(shown, model.bounds.peek()));
  };
  return (
    <div class="tl-notes" data-testid="timeline-notes">
      <form onSubmit={(event) => { event.preventDefault(); add(); }}>
        <input type="text" value={text} maxLength={2000} placeholder={`Note on ${subjectText}`} aria-label={`Note on ${subjectText}`} onInput={(event) => { setText(event.currentTarget.value); }} />
        <button type="submit" class="action">Add note</button>
      </form>
      {notesError.value === null ? null : <p role="alert" class="error-notice">{notesError.value}</p>}
      {notes.value.notes.length === 0 ? <p class="muted">Notes are stored with the run, and everybody who opens it sees them.</p> : (
        <ul>
          {notes.value.notes.map((note) => (
            <li key={`${note.from_after_ns} ${note.to_after_ns ?? ""} ${note.text}`}>
              <button type="button" class="tl-link" onClick={() => { show(note); }}>{exactTime(note.from_after_ns)}</button>
              <span>{note.text}</span>
              <IconButton icon={Trash2} label={`Delete the note at ${exactTime(note.from_after_ns)}`} size={14} onClick={() => { void changeNotes({ add: NOTHING, remove: { notes: [note], views: [] } }); }} />
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
