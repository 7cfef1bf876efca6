// Light or dark theme: the system's preference until the reader overrides it, which is remembered;
// light in print.
import { computed, effect, signal } from "@preact/signals";

import { remembered } from "./remembered";

const system = window.matchMedia("(prefers-color-scheme: dark)");
const preferred = signal(system.matches);
const choice = remembered("theme", ["system", "light", "dark"]);
const paper = window.matchMedia("print");
export const printing = signal(paper.matches);

export const dark = computed(() => (printing.value || choice.value === "light" ? false : choice.value === "dark" || preferred.value));

export function toggleTheme(): void {
  choice.value = dark.value ? "light" : "dark";
}

/** Follow the system theme and the printer; sets the theme on the root element. */
export function followTheme(): void {
  system.addEventListener("change", (event) => {
    preferred.value = event.matches;
  });
  window.addEventListener("beforeprint", () => {
    printing.value = true;
  });
  // Also for print previews and emulated print media.
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
