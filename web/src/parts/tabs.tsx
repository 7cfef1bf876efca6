// Tabs of a screen; the selected one is in the URL.
import type { JSX } from "preact";

import { link, screen } from "../state/url";
import { useOption } from "./url_options";

/** Return the selected tab and the tab bar. */
export function useTabs<Name extends string>(
  tabs: readonly (readonly [Name, string])[],
): { selected: Name; bar: JSX.Element } {
  const [selected] = useOption("tab", tabs.map(([name]) => name));
  const bar = (
    <nav class="tabs" aria-label="Tabs">
      {tabs.map(([name, label], index) => (
        <a
          key={name}
          href={link(screen.value, { tab: index === 0 ? null : name })}
          aria-current={name === selected ? "page" : undefined}
        >
          {label}
        </a>
      ))}
    </nav>
  );
  return { selected, bar };
}
