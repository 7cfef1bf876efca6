// Screen of a view that has none of its specific, drawn as the server describes it.
import type { Options } from "../api/client";
import type { JsonObject, ViewDescription, ViewOption } from "../api/schema";
import { capitalize, words } from "../base/text";
import { PayloadView } from "../parts/payload";
import { useRowLimit } from "../parts/row_limit";
import { TraceSelect, selectedTrace, useTraces } from "../parts/trace_screen";
import { useOption, useText } from "../parts/url_options";
import { range, useGet } from "../state/fetch";
import { param, run, screen } from "../state/url";
import { describedViews } from "../state/views";
import { PageHeader } from "../widgets/page_header";
import { EmptyState, ResourceView } from "../widgets/resource_view";
import { Select } from "../widgets/select";

/** Options that all screens share. */
const SHARED = ["from_ns", "to_ns", "trace", "rank", "top"];

export default function Generic() {
  const view = describedViews.value.find(({ name }) => name === screen.value);
  return view === undefined ? null : <ViewScreen view={view} />;
}

function ViewScreen({ view }: { view: ViewDescription }) {
  const { data } = useTraces();
  const recordings = data?.recordings ?? [];
  const accepts = (name: string): boolean => view.options.some((option) => option.name === name);
  const ranks = [...new Set(recordings.flatMap(({ rank }) => (rank === null ? [] : [String(rank)])))];
  const [rank, setRank] = useOption("rank", ["", ...ranks]);
  const [top, rowLimitSelect] = useRowLimit();
  const specific = view.options.filter(({ name }) => !SHARED.includes(name));
  const options: Options = {
    ...(accepts("from_ns") ? range() : {}),
    ...(accepts("trace") ? { trace: selectedTrace(recordings)?.trace } : accepts("rank") ? { rank } : {}),
    ...(accepts("top") ? { top } : {}),
    ...Object.fromEntries(specific.map(({ name }) => [name, param(name).value])),
  };
  const lacking = specific.filter(({ name, required }) => required && (options[name] ?? "") === "");
  return (
    <>
      <PageHeader title={view.title} description={view.description}>
        {accepts("trace") ? <TraceSelect traces={recordings} /> : null}
        {accepts("rank") && !accepts("trace") && ranks.length > 1 ? (
          <Select label="Rank" value={rank} choices={[["", "all ranks"], ...ranks]} onChange={setRank} />
        ) : null}
        {accepts("top") ? rowLimitSelect : null}
        {specific.map((option) => <OptionControl key={option.name} option={option} />)}
      </PageHeader>
      {lacking.length > 0 ? (
        <EmptyState title="More is needed" text={`enter ${lacking.map(({ name }) => words(name)).join(" and ")} above`} />
      ) : accepts("trace") && data === null ? null : (
        <Content view={view} options={options} />
      )}
    </>
  );
}

function Content({ view, options }: { view: ViewDescription; options: Options }) {
  const resource = useGet<JsonObject>(`/api/views/${view.name}`, { run: run.value, ...options });
  return (
    <ResourceView resource={resource}>
      {(payload) => <PayloadView value={payload} type={view.payload} omitted={view.options.flatMap(({ name, schema }) => (schema.enum === undefined ? [] : [name]))} />}
    </ResourceView>
  );
}

/** Control of one option: a selection if its values are known, else a text. */
function OptionControl({ option: { name, schema } }: { option: ViewOption }) {
  const label = capitalize(words(name));
  const [text, setText] = useText(name);
  if (schema.enum !== undefined) {
    return <Select label={label} value={text === "" ? (schema.default ?? "") : text} choices={schema.enum} onChange={setText} />;
  }
  return (
    <label class="choice">
      <span>{label}</span>
      <input type="text" value={text} onChange={(event) => { setText(event.currentTarget.value.trim()); }} />
    </label>
  );
}
