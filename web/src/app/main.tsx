// Entry point of the web UI: applies the theme, follows URL and run, and renders the shell.
import { render } from "preact";

import { followTheme } from "../base/theme";
import "../base/tokens.css";
import { followRun } from "../state/live";
import { followNotes } from "../state/notes";
import { setScreenTitles } from "../state/screen_titles";
import { followUrl } from "../state/url";
import { loadViews } from "../state/views";
import "../widgets/definition.css";
import "../widgets/verdict.css";
import "../widgets/widgets.css";
import { SCREENS, screenOf } from "./screens";
import { Shell } from "./shell";
import "./app.css";

const root = document.getElementById("app");
if (root !== null) {
  setScreenTitles((view) => screenOf(view, SCREENS)?.title);
  followTheme();
  followUrl();
  followRun();
  followNotes();
  void loadViews();
  root.textContent = "";
  render(<Shell />, root);
}
