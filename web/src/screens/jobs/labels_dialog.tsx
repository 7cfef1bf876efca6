// Dialog that changes the title, the tags and the notes of a run.
import { useState } from "preact/hooks";

import type { RunLabels, TagRequest } from "../../api/server";
import type { JobRow } from "../../api/views";
import { RequestError, post } from "../../base/client";
import { reloadJobs } from "../../state/jobs";
import { Dialog } from "../../widgets/dialog";

interface Props {
  job: JobRow;
  onClose: () => void;
}

/** Tags of a text in which they are separated by commas. */
export function parseTags(text: string): string[] {
  return [...new Set(text.split(",").map((tag) => tag.trim()).filter((tag) => tag !== ""))];
}

export function LabelsDialog({ job, onClose }: Props) {
  const [title, setTitle] = useState(job.title ?? "");
  const [tags, setTags] = useState(job.tags.join(", "));
  const [notes, setNotes] = useState(job.notes);
  const [failure, setFailure] = useState("");
  const save = (event: Event): void => {
    event.preventDefault();
    const body: TagRequest = { run: job.id, title, tags: parseTags(tags), notes };
    post<RunLabels>("/api/tag", body).then(
      () => {
        reloadJobs();
        onClose();
      },
      (error: unknown) => { setFailure(error instanceof RequestError ? error.message : String(error)); },
    );
  };
  return (
    <Dialog class="confirm" label={`Title, tags and notes of ${job.name}`} onClose={onClose}>
      <form class="labels" onSubmit={save}>
        <h2>{job.name}</h2>
        <p class="muted path">Stored with the run <code>{job.id}</code>. The command <code>stepscope tag {job.id}</code> edits them as well.</p>
        <label>Title <input type="text" value={title} maxLength={200} placeholder={job.id} onInput={(event) => { setTitle(event.currentTarget.value); }} /></label>
        <label>Tags, separated by commas <input type="text" value={tags} onInput={(event) => { setTags(event.currentTarget.value); }} /></label>
        <label>Notes <textarea rows={5} value={notes} maxLength={20_000} onInput={(event) => { setNotes(event.currentTarget.value); }} /></label>
        <p role="alert" class="muted">{failure}</p>
        <div class="buttons">
          <button type="button" class="action" onClick={onClose}>Cancel</button>
          <button type="submit" class="action strong">Save</button>
        </div>
      </form>
    </Dialog>
  );
}
