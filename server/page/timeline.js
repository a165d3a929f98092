// The sound as a spectrogram, and below it each character where it was decided: the alignment, made visible.

import { Painter, PIXELS_PER_SECOND } from "./painter.js";
import { BANDS, COLUMNS_PER_SECOND, Spectrum } from "./spectrum.js";

const AHEAD = 0.6; // seconds of room right of now, while it is live
const LONGEST = 3600; // seconds of spectrogram that are kept; characters are kept for good
const STEP = 1; // seconds per press of an arrow key

export class Timeline {
  duration = 0; // seconds of audio so far
  #canvas;
  #painter;
  #columns = [];
  #dropped = 0; // columns that are no longer kept
  #spectrum = null;
  #marks = [];
  #settledMarks = 0; // how many of them belong to segments
  #segments = [];
  #end = null; // time at the right edge if the user has moved it; null follows the sound
  #isLive = false;
  #heardAt = 0;
  #dirty = true;
  #onFollow;

  constructor(canvas, onFollow) {
    this.#canvas = canvas;
    this.#painter = new Painter(canvas);
    this.#onFollow = onFollow;
    new ResizeObserver(() => this.#resize()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    this.#listen();
    const draw = () => {
      if (this.#dirty || this.#isLive) this.#draw();
      requestAnimationFrame(draw);
    };
    requestAnimationFrame(draw);
  }

  get isLive() {
    return this.#isLive;
  }

  // ---------------------------------------------------------------- what there is to show
  begin(rate, live) {
    this.#spectrum = new Spectrum(rate);
    this.#isLive = live;
    this.rate = rate;
    this.follow();
  }

  hear(samples) {
    this.#spectrum.accept(samples, (column) => this.#columns.push(column));
    this.duration += samples.length / this.rate;
    this.#heardAt = performance.now();
    const excess = this.#columns.length - LONGEST * COLUMNS_PER_SECOND;
    if (excess > 1000) {
      this.#columns.splice(0, excess);
      this.#dropped += excess;
    }
    this.#dirty = true;
  }

  end() {
    this.#isLive = false;
    // the next recording begins on a whole column
    while (this.#dropped + this.#columns.length < this.duration * COLUMNS_PER_SECOND) this.#columns.push(new Uint8Array(BANDS));
    this.duration = (this.#dropped + this.#columns.length) / COLUMNS_PER_SECOND;
    this.#dirty = true;
  }

  mark(text, time) {
    time = Math.max(time, this.#marks.at(-1)?.time ?? 0); // painters look for them by halves
    const startsWord = text.startsWith(" ") || this.#marks.length === this.#settledMarks;
    this.#marks.push({ text: text.trim(), startsWord, time, row: -1, x: 0 });
    this.#dirty = true;
  }

  // The marks since the last segment are void.
  unmark() {
    this.#marks.length = this.#settledMarks;
    this.#dirty = true;
  }

  settle(segment) {
    this.#segments.push(segment);
    this.#settledMarks = this.#marks.length;
    this.#dirty = true;
  }

  clear() {
    [this.#columns, this.#marks, this.#segments] = [[], [], []];
    this.#settledMarks = this.#dropped = this.duration = 0;
    this.follow();
  }

  // ---------------------------------------------------------------- where to look
  follow() {
    this.#end = null;
    this.#dirty = true;
    this.#onFollow(true);
  }

  show(start) {
    this.#moveTo(start + 0.85 * this.#painter.span);
  }

  #moveTo(end) {
    const last = this.#liveEnd();
    this.#end = end >= last ? null : Math.max(end, Math.min(this.#painter.span, last));
    this.#dirty = true;
    this.#onFollow(this.#end === null);
  }

  #listen() {
    const canvas = this.#canvas;
    let grabbed = null;
    canvas.addEventListener("pointerdown", (event) => {
      grabbed = { x: event.clientX, end: this.#end ?? this.#liveEnd() };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (grabbed) this.#moveTo(grabbed.end - (event.clientX - grabbed.x) / PIXELS_PER_SECOND);
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (grabbed = null));
    canvas.addEventListener(
      "wheel",
      (event) => {
        const distance = Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : event.shiftKey ? event.deltaY : 0;
        if (!distance) return;
        event.preventDefault();
        this.#moveTo((this.#end ?? this.#liveEnd()) + distance / PIXELS_PER_SECOND);
      },
      { passive: false },
    );
    canvas.addEventListener("keydown", (event) => {
      const end = this.#end ?? this.#liveEnd();
      const ends = { ArrowLeft: end - STEP, ArrowRight: end + STEP, PageUp: end - this.#painter.span, PageDown: end + this.#painter.span, Home: 0, End: Infinity };
      if (!(event.key in ends)) return;
      event.preventDefault();
      this.#moveTo(ends[event.key]);
    });
  }

  // ---------------------------------------------------------------- drawing
  recolour() {
    this.#painter.recolour();
    this.#dirty = true;
  }

  #resize() {
    this.#painter.resize();
    this.#dirty = true;
  }

  // Where the sound is by now: smooth between two pieces.
  #now() {
    return this.duration + Math.min((performance.now() - this.#heardAt) / 1000, 0.1);
  }

  #liveEnd() {
    return Math.max(this.#isLive ? this.#now() + AHEAD : this.duration, this.#painter.span);
  }

  #draw() {
    this.#dirty = false;
    this.#painter.draw((this.#end ?? this.#liveEnd()) - this.#painter.span, {
      columns: this.#columns,
      dropped: this.#dropped,
      segments: this.#segments,
      marks: this.#marks,
      now: this.#isLive && this.#end === null ? this.#now() : null,
    });
  }
}
