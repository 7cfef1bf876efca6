// Where a job is stuck or has failed: the place of each rank, or of each process of a job that hangs.
import type { StuckAccount } from "../api/report";
import { countOf } from "../base/quantities";
import { Prose } from "./prose";

const MAX_LISTED = 16;

export function Stuck({ account }: { account: StuckAccount }) {
  const isBlamed = (rank: number) => account.culprits.includes(rank);
  const ranks = [...account.ranks].sort((a, b) => Number(isBlamed(b.rank)) - Number(isBlamed(a.rank)) || a.rank - b.rank);
  const texts = ranks.length > 0 ? ranks.map((rank) => rank.text) : account.processes.map((process) => process.text);
  const more = texts.length - MAX_LISTED;
  return (
    <section class="verdict death stuck" data-testid="stuck" aria-labelledby="stuck-title">
      <p class="eyebrow">{account.has_ended ? "Was stuck" : "Stuck"}</p>
      <h2 id="stuck-title"><Prose text={account.headline} /></h2>
      <ul>{texts.slice(0, MAX_LISTED).map((text) => <li key={text}><Prose text={text} /></li>)}</ul>
      {account.advice === "" ? null : <p><b>What to do:</b> <Prose text={account.advice} /></p>}
      {more <= 0 ? null : <p class="muted">{ranks.length > 0 ? countOf(more, "more rank") : countOf(more, "more process", "more processes")}</p>}
    </section>
  );
}
