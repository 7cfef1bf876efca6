// Screen of a view that no other screen draws, from the labels of its fields.
import type { Options } from "../base/client";
import type { JsonObject, ViewDescription, ViewOption } from "../state/schema";
import { capitalize, words } from "../base/text";
import { PayloadView } from "../parts/payload";
import { TraceSelect, selectedTrace, useTraces } from "../parts/trace_screen";
import { useRowLimit, useSelect, useTextInput } from "../parts/url_controls";
import { range, useGet } from "../state/fetch";
import { param, run, screen } from "../state/url";
import { describedViews } from "../state/views";
import { PageHeader } from "../widgets/page_header";
import { EmptyState, ResourceView } from "../widgets/resource_view";

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
  const [rank, rankSelect] = useSelect("rank", "Rank", [["", "all ranks"], ...ranks]);
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
        {accepts("rank") && !accepts("trace") && ranks.length > 1 ? rankSelect : null}
        {accepts("top") ? rowLimitSelect : null}
        {specific.map((option) => {
          const Control = option.schema.enum === undefined ? TextOption : SelectOption;
          return <Control key={option.name} option={option} />;
        })}
      </PageHeader>
      {lacking.length > 0 ? (
        <EmptyState title="More is needed" text={`enter ${lacking.map(titleOf).join(" and ")} above`} />
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

function titleOf({ name, schema }: ViewOption): string {
  return capitalize(schema.title ?? words(name));
}

interface OptionProps {
  option: ViewOption;
}

function TextOption({ option }: OptionProps) {
  return useTextInput(option.name, titleOf(option))[1];
}

function SelectOption({ option }: OptionProps) {
  return useSelect(option.name, titleOf(option), option.schema.enum ?? [], option.schema.default)[1];
}
