// Outcome of a rule: status, counts, parameters and recommendation.
import type { Check } from "../api/report";
import { count, countOf } from "../base/quantities";
import { uncapitalize } from "../base/text";
import { RuleStatusBadge } from "../widgets/rule_status";

export function CheckView({ check }: { check: Check }) {
  const facts: [string, string][] = [
    ["datapoints", count(check.datapoints)],
    ["violations", count(check.violations)],
    ["triggered", countOf(check.triggered, "time")],
    ...(check.last_at === null ? [] : [["last triggered", check.last_at] as [string, string]]),
    ...Object.entries(check.parameters),
  ];
  return (
    <div class="check">
      <p>
        <RuleStatusBadge status={check.status} /> <b>{check.rule}</b> {uncapitalize(check.summary)}
      </p>
      <dl>
        {facts.map(([name, value]) => (
          <div key={name}><dt>{name}</dt><dd>{value}</dd></div>
        ))}
      </dl>
      {check.recommendation === null ? null : <p class="advice">{check.recommendation}</p>}
    </div>
  );
}

