// Search for events by part of their name.
import { effect, signal } from "@preact/signals";
import { ChevronLeft, ChevronRight } from "lucide";
import { useEffect, useState } from "preact/hooks";

import type { SearchView, TimelineEvent } from "../../api/views";
import { count, countOf, duration } from "../../base/quantities";
import type { SliceRef } from "../../canvas/scene";
import { fetchView, revision } from "../../state/fetch";
import { IconButton } from "../../widgets/icon_button";
import type { Commands } from "./commands";
import { dependOn } from "./depend";
import type { Model } from "./model";
import { searchText, setSearchText } from "./url_state";

/** Delay of the request while the reader types. */
const TYPING_MS = 180;

export type Search = ReturnType<typeof createSearch>;

export function createSearch(model: Model, commands: Commands) {
  const results = signal<SearchView | null>(null);
  /** Index of the selected match among all matches. */
  const current = signal<number | null>(null);
  const error = signal<string | null>(null);
  let abort = new AbortController();
  /** Timer of the request after typing. */
  let timer = 0;

  const requestMatches = async (aroundNs: number): Promise<SearchView | null> => {
    clearTimeout(timer); // a pending request would abort this one
    abort.abort();
    abort = new AbortController();
    const { signal: aborted } = abort;
    const name = searchText.peek().trim();
    if (name === "") return null;
    try {
      const around_ns = Math.max(0, Math.round(aroundNs));
      const view = await fetchView("timeline-search", { name, around_ns }, aborted);
      results.value = view;
      error.value = null;
      return view;
    } catch (reason) {
      if (!aborted.aborted) error.value = reason instanceof Error ? reason.message : String(reason);
      return null;
    }
  };

  const selectMatch = (view: SearchView, index: number): boolean => {
    const match = view.matches[index - view.before_count];
    if (match === undefined) return false;
    current.value = index;
    commands.showSlice(matchRef(match));
    return true;
  };

  /** Select the next or previous match, or the first from the start of the window. */
  const selectNext = async (direction: 1 | -1): Promise<void> => {
    let view = results.peek();
    if (view?.name !== searchText.peek().trim()) view = await requestMatches(model.span.peek().from);
    if (view === null || view.match_count === 0) return;
    const currentIndex = current.peek();
    const target = currentIndex === null ? firstMatchFrom(view, model.span.peek().from, direction) : currentIndex + direction;
    const index = (target + view.match_count) % view.match_count;
    if (selectMatch(view, index)) return;
    // Beyond the listed matches: load the list around the target first.
    const edge = direction > 0 ? view.matches.at(-1) : view.matches[0];
    const wrapsAround = index !== target;
    const aroundNs = wrapsAround ? (direction > 0 ? 0 : model.bounds.peek().end) : (edge?.after_ns ?? 0);
    view = await requestMatches(aroundNs);
    if (view !== null) selectMatch(view, index);
  };

  const start = (): (() => void) => {
    const stop = effect(() => {
      const name = searchText.value.trim();
      dependOn(revision);
      clearTimeout(timer);
      if (results.peek()?.name !== name) {
        current.value = null;
        results.value = null;
      }
      abort.abort();
      if (name !== "") timer = window.setTimeout(() => void requestMatches(model.span.peek().from), TYPING_MS);
    });
    return () => {
      stop();
      clearTimeout(timer);
      abort.abort();
    };
  };
  return { results, current, error, selectNext, start };
}

/** Index of the first listed match at or after a time, or of the last one before it. */
export function firstMatchFrom(view: SearchView, ns: number, direction: 1 | -1): number {
  const index = view.matches.findIndex((match) => match.after_ns >= ns);
  const position = index < 0 ? view.matches.length : index;
  return view.before_count + (direction > 0 ? position : position - 1);
}

function matchRef({ track, event, row, after_ns, duration_ns, name }: TimelineEvent): SliceRef {
  return { track, event, row, after_ns, duration_ns, name };
}

export const SEARCH_ID = "timeline-search-box";

export function SearchBox({ search }: { search: Search }) {
  const [text, setText] = useState(searchText.peek());
  useEffect(() => searchText.subscribe(setText), []);
  return (
    <div class="tl-search" role="search">
      <input
        id={SEARCH_ID}
        type="search"
        placeholder="Search by name  /"
        aria-label="Search events by name"
        data-testid="timeline-search"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setSearchText(event.currentTarget.value);
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter") void search.selectNext(event.shiftKey ? -1 : 1);
          if (event.key !== "Escape") return;
          event.preventDefault(); // browsers only clear the field
          setSearchText("");
          event.currentTarget.blur();
        }}
      />
      <IconButton icon={ChevronLeft} label="Previous match" size={16} onClick={() => void search.selectNext(-1)} />
      <IconButton icon={ChevronRight} label="Next match" size={16} onClick={() => void search.selectNext(1)} />
      <span class="tl-count muted" role="status" data-testid="timeline-match-count">{resultText(search)}</span>
    </div>
  );
}

function resultText({ results, current, error }: Search): string {
  if (error.value !== null) return error.value;
  const view = results.value;
  if (view === null) return "";
  if (view.match_count === 0) return "no matches";
  const position = current.value === null
    ? countOf(view.match_count, "match", "matches")
    : `${count(current.value + 1)} of ${count(view.match_count)}`;
  return `${position}, ${duration(view.total_ns)} in total`;
}
