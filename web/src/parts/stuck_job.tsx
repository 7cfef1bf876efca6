// Where the job is stuck, or was when it failed; nothing of a job that is not.
import { useWholeView } from "../state/fetch";
import { Stuck } from "../widgets/stuck";

export function StuckJob() {
  const account = useWholeView("overview").data?.verdict.stuck ?? null;
  return account === null ? null : <Stuck account={account} />;
}
