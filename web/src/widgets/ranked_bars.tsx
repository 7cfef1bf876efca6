// Ranking of names by a value, with a bar each.
interface Row {
  name: string;
  /** Share of the largest value. */
  ratio: number;
  value: string;
  detail?: string | undefined;
}

interface Props {
  label: string;
  rows: Row[];
  linkOf?: ((name: string) => string) | undefined;
}

/** @param props.linkOf URL for a name */
export function RankedBars({ label, rows, linkOf }: Props) {
  return (
    <ol class="ranked-bars" aria-label={label}>
      {rows.map((row) => (
        <li key={row.name}>
          <span class="ranked-bars-name" title={row.name.slice(0, 1600)}>
            {linkOf === undefined ? truncate(row.name) : <a href={linkOf(row.name)}>{truncate(row.name)}</a>}
          </span>
          <span class="ranked-bars-value">
            {row.value}
            {row.detail === undefined ? null : <small>{row.detail}</small>}
          </span>
          <i aria-hidden="true"><b style={{ width: `${100 * Math.min(1, row.ratio)}%` }} /></i>
        </li>
      ))}
    </ol>
  );
}

function truncate(name: string): string {
  return name.slice(0, 300);
}
