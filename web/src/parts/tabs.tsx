// Tabs of a screen; the selected one is in the URL.
import { useOption } from "./url_options";
import { link, screen } from "../state/url";

/** Return the selected tab and the tab bar. */
export function useTabs<Name extends string>(
  tabs: readonly (readonly [Name, string])[],
): { selected: Name; bar: preact.JSX.Element } {
  const [selected] = useOption("tab", tabs.map(([name]) => name));
  const bar = (
    <nav class="tabs" aria-label="Tabs">
      {tabs.map(([name, words], index) => (
        <a
          key={name}
          href={link(screen.value, { tab: index === 0 ? null : name })}
          aria-current={name === selected ? "page" : undefined}
        >
          {words}
        </a>
      ))}
    </nav>
  );
  return { selected, bar };
}
