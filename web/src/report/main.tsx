// Entry point of the report: reads the payload from the page and renders it.
import { render } from "preact";

import type { Report } from "../api/report";
import { followTheme } from "../base/theme";
import "../base/tokens.css";
import "../widgets/definition.css";
import "../widgets/verdict.css";
import { Page } from "./page";
import "./report.css";

const data = document.getElementById("payload");
const root = document.getElementById("report");
if (data !== null && root !== null) {
  followTheme();
  root.textContent = "";
  render(<Page report={JSON.parse(data.textContent) as Report} />, root);
}
