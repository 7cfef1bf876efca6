// Choices of the reader on how timelines are drawn and moved, for all runs.
import { remembered } from "../../base/remembered";

export const colourBy = remembered("timeline.colour", ["kind", "name"]);
/** What the wheel does; with Ctrl it does the other of the two. */
export const wheel = remembered("timeline.wheel", ["scroll", "zoom"]);
export const emptyRows = remembered("timeline.empty-rows", ["hide", "show"]);
