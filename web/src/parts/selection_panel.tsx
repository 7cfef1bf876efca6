// Panel on the event name selected in a table, with a link to the timeline.
import type { ComponentChildren } from "preact";

import { Panel } from "../widgets/panel";
import { TimelineLink } from "./timeline_link";

const MAX_TITLE_LENGTH = 1000;

export function SelectionPanel({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <Panel title={name.slice(0, MAX_TITLE_LENGTH)} wide isSelection tools={<TimelineLink name={name} />}>
      {children}
    </Panel>
  );
}
