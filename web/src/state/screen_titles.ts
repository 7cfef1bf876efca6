// Titles of the screens by the views that they draw; the app, which knows the screens, sets them.
import { capitalize } from "../base/text";

type TitleOf = (view: string) => string | undefined;

let titleOf: TitleOf = () => undefined;

export function setScreenTitles(titles: TitleOf): void {
  titleOf = titles;
}

/** Title of the screen that draws a view. */
export function screenTitle(view: string): string {
  return titleOf(view) ?? capitalize(view.replaceAll("-", " "));
}
