// The text: settled segments, and the one that is growing.

import { shortClock } from "./formats.js";

const DOUBTFUL = 0.6; // confidence below which a word is marked

export class Transcript {
  segments = [];
  #list;
  #settledWords = 0;
  #current = null; // the list item that grows
  #spoken = [0, 0]; // seconds of its first and last characters
  #onPick;

  // `onPick(seconds)` is called when the user picks a time.
  constructor(list, onPick) {
    this.#list = list;
    this.#onPick = onPick;
  }

  append(text, time) {
    this.#current ??= this.#begin(time);
    this.#spoken[1] = time;
    const isNearEnd = this.#isNearEnd();
    const span = document.createElement("span");
    span.className = "new";
    span.textContent = text;
    this.#current.querySelector(".growing").append(span);
    if (isNearEnd) this.#scrollToEnd();
  }

  settle(segment) {
    const isNearEnd = this.#isNearEnd();
    this.void();
    this.segments.push(segment);
    this.#settledWords += count(segment.text);
    const item = this.#item(segment.start);
    const text = document.createElement("p");
    for (const word of segment.words.length ? segment.words : [segment]) {
      const span = document.createElement("span");
      span.textContent = word.text;
      span.title = `${shortClock(word.start)} · ${word.confidence ? `${Math.round(100 * word.confidence)} % sure` : "unfinished"}`;
      span.classList.toggle("doubtful", word.confidence < DOUBTFUL);
      text.append(text.childNodes.length ? " " : "", span);
    }
    item.append(text);
    this.#list.append(item);
    if (isNearEnd) this.#scrollToEnd();
  }

  // What there is of a segment that will not be finished, or null.
  get unfinished() {
    const text = this.#current?.querySelector(".growing").textContent.trim();
    return text ? { text, start: this.#spoken[0], end: this.#spoken[1], confidence: 0, words: [] } : null;
  }

  // The characters of the segment that grows are not to be shown any longer.
  void() {
    this.#current?.remove();
    this.#current = null;
  }

  clear() {
    this.void();
    this.#list.replaceChildren();
    this.segments = [];
    this.#settledWords = 0;
  }

  get words() {
    return this.#settledWords + count(this.#current?.querySelector(".growing").textContent ?? "");
  }

  get isEmpty() {
    return !this.segments.length && !this.#current;
  }

  #begin(time) {
    this.#spoken[0] = time;
    const item = this.#item(time);
    item.classList.add("current");
    item.setAttribute("aria-hidden", "true"); // single letters are no help to who listens; the settled segment is read out
    const text = document.createElement("p");
    const growing = document.createElement("span");
    growing.className = "growing";
    const caret = document.createElement("span");
    caret.className = "caret";
    text.append(growing, caret);
    item.append(text);
    this.#list.append(item);
    return item;
  }

  #item(time) {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.className = "time";
    button.textContent = shortClock(time);
    button.setAttribute("aria-label", `Show ${shortClock(time)} in the picture of the sound`);
    button.addEventListener("click", () => this.#onPick(time));
    item.append(button);
    return item;
  }

  #isNearEnd() {
    const box = this.#list.parentElement;
    return box.scrollHeight - box.scrollTop - box.clientHeight < 80;
  }

  #scrollToEnd() {
    const box = this.#list.parentElement;
    box.scrollTop = box.scrollHeight;
  }
}

function count(text) {
  return text.split(" ").filter(Boolean).length;
}
