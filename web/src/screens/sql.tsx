// SQL over the tables and views of the run, with examples.
import { useEffect, useState } from "preact/hooks";

import type { QueryResult, SqlRequest } from "../api/server";
import { RequestError, post, type Resource } from "../base/client";
import { LinkedTable } from "../parts/linked_table";
import { useText } from "../parts/url_options";
import { run } from "../state/url";
import { column, type Value } from "../widgets/fields";
import { PageHeader } from "../widgets/page_header";
import { Panel } from "../widgets/panel";
import { EmptyState, ResourceView } from "../widgets/resource_view";
import { Select } from "../widgets/select";

/** Titles of the examples, and their queries, which work on every run. */
const EXAMPLES = [
  ["Tables of the run", "SHOW TABLES"],
  ["Columns of a table", "DESCRIBE kernels"],
  ["Time by kind of span", "SELECT kind, count(*) AS spans, sum(end_ns - start_ns) / 1e9 AS total_s\nFROM spans\nGROUP BY kind\nORDER BY total_s DESC"],
  ["Kernels without Tensor Cores", "SELECT name, calls, total_ns, share_ratio\nFROM views.kernels\nWHERE NOT tensor_cores\nORDER BY total_ns DESC"],
  ["Largest gaps between kernels", "SELECT device, start_ns - lag(start_ns + duration_ns) OVER (PARTITION BY device ORDER BY start_ns) AS gap_ns, name\nFROM kernels\nORDER BY gap_ns DESC NULLS LAST\nLIMIT 20"],
  ["Samples of the node", "SELECT node, metric, device, count(*) AS samples, avg(value) AS mean, max(value) AS max\nFROM metrics\nGROUP BY ALL\nORDER BY ALL"],
] as const;

const NONE: Resource<QueryResult> = { data: null, error: null, loading: false };

export default function SqlScreen() {
  const [query, setQuery] = useText("query");
  const [text, setText] = useState(query);
  const [attempt, setAttempt] = useState(0);
  const resource = useQuery(query, attempt);
  const submit = (): void => {
    setQuery(text.trim());
    setAttempt(attempt + 1);
  };
  useEffect(() => { setText(query); }, [query]);
  return (
    <>
      <PageHeader title="SQL">
        <Select
          label="Example"
          value=""
          choices={[["", "select an example"], ...EXAMPLES.map(([title]) => title)]}
          onChange={(title) => { setText(EXAMPLES.find((example) => example[0] === title)?.[1] ?? text); }}
        />
      </PageHeader>
      <div class="panels">
        <Panel title="Query" wide description="A `SELECT` in DuckDB's SQL over the tables of the run, and over the tables of its views, as in `views.kernels`. Times are nanoseconds. Results are cut after 1,000 rows and 10 s; `stepscope sql RUN QUERY` has other limits.">
          <form
            onSubmit={(event) => {
              event.preventDefault();
              submit();
            }}
          >
            <textarea
              aria-label="Query"
              rows={6}
              spellcheck={false}
              value={text}
              onInput={(event) => { setText(event.currentTarget.value); }}
              onKeyDown={(event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(); }}
            />
            <p class="tools"><button type="submit" class="action strong" title="Ctrl+Enter">Run query</button></p>
          </form>
        </Panel>
      </div>
      {query === "" ? <EmptyState title="No query" text="write a query or select an example above" /> : (
        <ResourceView resource={resource}>{(result) => <Result result={result} query={query} />}</ResourceView>
      )}
    </>
  );
}

/** Result of a query of the current run; asked again with each attempt. */
function useQuery(query: string, attempt: number): Resource<QueryResult> {
  const [resource, setResource] = useState(NONE);
  const id = run.value;
  useEffect(() => {
    if (query === "" || id === null) return undefined;
    let isCurrent = true;
    setResource((before) => ({ ...before, error: null, loading: true }));
    const request: SqlRequest = { run: id, query };
    post<QueryResult>("/api/sql", request).then(
      (data) => { if (isCurrent) setResource({ data, error: null, loading: false }); },
      (error: unknown) => {
        const failure = error instanceof RequestError ? error : new RequestError(String(error), 0);
        if (isCurrent) setResource({ data: null, error: failure, loading: false });
      },
    );
    return () => { isCurrent = false; };
  }, [id, query, attempt]);
  return resource;
}

function Result({ result, query }: { result: QueryResult; query: string }) {
  const fields = result.columns.map(({ name, type }, index) =>
    column(name, name, "none", (row: Value[]) => row[index] ?? null, {
      description: type,
      numeric: result.rows.some((row) => typeof row[index] === "number"),
      display: "identifier",
    }));
  return (
    <LinkedTable
      title="Result"
      tools={<a class="quiet" href={`/api/sql-arrow?${new URLSearchParams({ run: run.value ?? "", query })}`} download title="Types are kept; needs pyarrow where the page is served">Arrow</a>}
      testid="table-sql"
      rows={result.rows}
      fields={fields}
      footnote={result.notes.length === 0 ? undefined : result.notes.join(" ")}
    />
  );
}
