// Colour-blind safe palette (Okabe and Ito, 2008), ordered so that neighbours differ. Charts add
// patterns and line styles: colour is never the only distinction.

export interface Palette {
  text: string;
  muted: string;
  line: string;
  surface: string;
  series: string[];
}

const LIGHT: Palette = {
  text: "#1b1f24",
  muted: "#57606a",
  line: "#d0d7de",
  surface: "#ffffff",
  series: [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c8c", "#c9b800",
  ],
};

const DARK: Palette = {
  text: "#e6edf3",
  muted: "#9aa5b1",
  line: "#30363d",
  surface: "#161b22",
  series: [
    "#56b4e9", "#e69f00", "#2fbf95", "#d58fb8", "#3a8fd0", "#e8743b", "#a6a6a6", "#f0e442",
  ],
};

/** Viridis from minimum to maximum. */
export const VIRIDIS = ["#440154", "#414487", "#2a788e", "#22a884", "#7ad151", "#fde725"];

export function palette(dark: boolean): Palette {
  return dark ? DARK : LIGHT;
}
