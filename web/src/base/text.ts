// Words, sentences and dates.
import { MISSING } from "./quantities";

const PROPER_NAMES = new Map([["cpu", "CPU"], ["gpu", "GPU"], ["python", "Python"]]);

/** Turn an identifier into words. */
export function words(name: string): string {
  return name.replaceAll("_", " ").replace(/\b(cpu|gpu|python)\b/g, (word) => PROPER_NAMES.get(word) ?? word);
}

/** Capitalize the first letter. */
export function capitalize(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Make the first letter lower case. */
export function uncapitalize(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}

/** Names of files, functions and settings keep their first letter. */
const IDENTIFIER = /^\S*[\w)][._=:(/]\w/;

/** Turn text into a sentence, with a capital and a full stop. */
export function sentence(text: string): string {
  return (IDENTIFIER.test(text) ? text : capitalize(text)) + (/[.!?:]$/.test(text) ? "" : ".");
}

/** Cut the middle out of a text that is longer than a number of characters. */
export function elideMiddle(text: string, length: number): string {
  if (text.length <= length) return text;
  const start = Math.ceil((length - 1) / 2);
  return `${text.slice(0, start)}…${text.slice(text.length - (length - 1 - start))}`;
}

/** Format date and time in the reader's time zone: 2026-11-22 05:00. */
export function dateTime(epochMs: number): string {
  const date = new Date(epochMs);
  if (Number.isNaN(date.getTime())) return MISSING;
  const padded = (value: number): string => value.toString().padStart(2, "0");
  const day = `${date.getFullYear()}-${padded(date.getMonth() + 1)}-${padded(date.getDate())}`;
  return `${day} ${padded(date.getHours())}:${padded(date.getMinutes())}`;
}
