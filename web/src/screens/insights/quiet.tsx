// Rules that found nothing or lack data, folded; documentation and parameters of a rule.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

import type { RuleInsight } from "../../api/views";
import { useText } from "../../parts/url_options";
import { KeyValues } from "../../widgets/key_values";
import { Markdown } from "../../widgets/markdown";
import { Prose } from "../../widgets/prose";
import { ruleTitle } from "./text";

/** Element that scrolls into view if the URL names one of these rules, and whether it does. */
export function useRevealed<Element extends HTMLElement>(rules: readonly string[]) {
  const [selected] = useText("rule");
  const element = useRef<Element>(null);
  const isRevealed = rules.includes(selected);
  useEffect(() => { if (isRevealed) element.current?.scrollIntoView(); }, [isRevealed]);
  return [element, isRevealed] as const;
}

interface FoldProps {
  title: string;
  /** Rules or reasons in short. */
  about: string;
  testid: string;
  rules: readonly string[];
  children: ComponentChildren;
}

/** Folded rules; open where the URL names one of them. */
export function RuleFold({ title, about, testid, rules, children }: FoldProps) {
  const [element, isRevealed] = useRevealed<HTMLDetailsElement>(rules);
  return (
    <details ref={element} class="fold" data-testid={testid} open={isRevealed}>
      <summary>{title} <span class="muted">{about}</span></summary>
      {children}
    </details>
  );
}

/** A rule without an issue: its result in a sentence, or else what it checks. */
export function QuietRule({ rule }: { rule: RuleInsight }) {
  const [element, isRevealed] = useRevealed<HTMLLIElement>([rule.rule]);
  const texts = rule.sentences.length === 0 ? [rule.summary] : rule.sentences;
  return (
    <li ref={element}>
      <b>{ruleTitle(rule.rule)}</b>
      {texts.map((text) => <p key={text}><Prose text={text} /></p>)}
      <details open={isRevealed}>
        <summary>About this rule</summary>
        <About rule={rule} />
      </details>
    </li>
  );
}

/** Documentation of a rule, and the parameters with which it was evaluated. */
export function About({ rule, children }: { rule: RuleInsight; children?: ComponentChildren }) {
  return (
    <div class="about-rule">
      {children}
      <KeyValues entries={[["Name", <code>{rule.rule}</code>], ...rule.parameters.map(({ name, value, doc }) => [name, value, doc] as const)]} />
      <Markdown text={rule.page} />
    </div>
  );
}
