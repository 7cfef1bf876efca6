// Dark or light: what the system prefers until the reader chooses; always light on paper.
import { computed, effect, signal } from "@preact/signals";

const system = window.matchMedia("(prefers-color-scheme: dark)");
const preferred = signal(system.matches);
const override = signal<boolean | null>(null);
const paper = window.matchMedia("print");
export const printing = signal(paper.matches);

export const dark = computed(() => (printing.value ? false : (override.value ?? preferred.value)));

export function toggleTheme(): void {
  override.value = !dark.value;
}

/** Follow the system and the printer; puts the theme on the root element. */
export function followTheme(): void {
  system.addEventListener("change", (event) => {
    preferred.value = event.matches;
  });
  window.addEventListener("beforeprint", () => {
    printing.value = true;
  });
  // Also where a page is only looked at as it would be printed.
  paper.addEventListener("change", (event) => {
    printing.value = event.matches;
  });
  window.addEventListener("afterprint", () => {
    printing.value = false;
  });
  effect(() => {
    document.documentElement.dataset.theme = dark.value ? "dark" : "light";
    document.documentElement.toggleAttribute("data-printing", printing.value);
  });
}
