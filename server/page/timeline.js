// The sound as a spectrogram, and below it each character where it was decided: the alignment, made visible.

import { BANDS, COLUMNS_PER_SECOND, Spectrum } from "./spectrum.js";
import { shortClock } from "./formats.js";

const PIXELS_PER_SECOND = 150;
const AHEAD = 0.6; // seconds of room right of now, while it is live
const ROWS = 4; // of characters, so that neighbours do not cover each other
const ROW_HEIGHT = 17;
const AXIS_HEIGHT = 20;
const LONGEST = 3600; // seconds of spectrogram that are kept; characters are kept for good
const STEP = 1; // seconds per press of an arrow key

export class Timeline {
  duration = 0; // seconds of audio so far
  #canvas;
  #context;
  #strip = document.createElement("canvas"); // what is visible, one pixel per column and band
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
  #colours;
  #onFollow;

  constructor(canvas, onFollow) {
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d");
    this.#onFollow = onFollow;
    new ResizeObserver(() => this.#resize()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    this.recolour();
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
    this.#moveTo(start + 0.85 * this.#span());
  }

  #moveTo(end) {
    const last = this.#liveEnd();
    this.#end = end >= last ? null : Math.max(end, Math.min(this.#span(), last));
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
      const ends = { ArrowLeft: end - STEP, ArrowRight: end + STEP, PageUp: end - this.#span(), PageDown: end + this.#span(), Home: 0, End: Infinity };
      if (!(event.key in ends)) return;
      event.preventDefault();
      this.#moveTo(ends[event.key]);
    });
  }

  // ---------------------------------------------------------------- drawing
  recolour() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    this.#colours = {
      palette: palette(["--sound-0", "--sound-1", "--sound-2", "--sound-3", "--sound-4"].map(value)),
      text: value("--text"),
      muted: value("--muted"),
      line: value("--line"),
      mark: value("--mark"),
      lane: value("--surface"),
      font: value("--mono"),
    };
    this.#dirty = true;
  }

  #resize() {
    const scale = devicePixelRatio || 1;
    this.#canvas.width = Math.round(this.#canvas.clientWidth * scale);
    this.#canvas.height = Math.round(this.#canvas.clientHeight * scale);
    this.#dirty = true;
  }

  #span() {
    return this.#canvas.clientWidth / PIXELS_PER_SECOND;
  }

  #liveEnd() {
    if (!this.#isLive) return Math.max(this.duration, this.#span());
    const since = Math.min((performance.now() - this.#heardAt) / 1000, 0.1); // smooth between two pieces
    return Math.max(this.duration + since + AHEAD, this.#span());
  }

  #draw() {
    this.#dirty = false;
    const [width, height] = [this.#canvas.clientWidth, this.#canvas.clientHeight];
    if (!width || !height) return;
    const scale = devicePixelRatio || 1;
    const context = this.#context;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    const end = this.#end ?? this.#liveEnd();
    const start = end - this.#span();
    const laneTop = height - AXIS_HEIGHT - ROWS * ROW_HEIGHT - 8;
    this.#drawSound(start, end, laneTop);
    this.#drawAxis(start, end, height);
    this.#drawSegments(start, end, height);
    this.#drawMarks(start, end, laneTop);
    if (this.#isLive && this.#end === null) this.#drawNow(start, laneTop);
  }

  #drawSound(start, end, height) {
    const context = this.#context;
    const first = Math.max(this.#dropped, Math.floor(start * COLUMNS_PER_SECOND));
    const last = Math.min(this.#dropped + this.#columns.length, Math.ceil(end * COLUMNS_PER_SECOND));
    context.fillStyle = `rgb(${this.#colours.palette.slice(0, 3).join(",")})`;
    context.fillRect(0, 0, this.#canvas.clientWidth, height);
    if (last <= first) return;
    this.#strip.width = last - first;
    this.#strip.height = BANDS;
    const image = new ImageData(last - first, BANDS);
    const pixels = image.data;
    const colours = this.#colours.palette;
    for (let column = first; column < last; column++) {
      const values = this.#columns[column - this.#dropped];
      for (let band = 0; band < BANDS; band++) {
        const at = 4 * ((BANDS - 1 - band) * (last - first) + column - first);
        const value = 3 * values[band];
        pixels[at] = colours[value];
        pixels[at + 1] = colours[value + 1];
        pixels[at + 2] = colours[value + 2];
        pixels[at + 3] = 255;
      }
    }
    this.#strip.getContext("2d").putImageData(image, 0, 0);
    const x = (first / COLUMNS_PER_SECOND - start) * PIXELS_PER_SECOND;
    context.imageSmoothingEnabled = true;
    context.drawImage(this.#strip, x, 0, ((last - first) / COLUMNS_PER_SECOND) * PIXELS_PER_SECOND, height);
  }

  #drawAxis(start, end, height) {
    const context = this.#context;
    context.font = `11px ${this.#colours.font}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let second = Math.max(0, Math.ceil(start)); second <= end; second++) {
      const x = Math.round((second - start) * PIXELS_PER_SECOND) + 0.5;
      context.strokeStyle = this.#colours.line;
      line(context, x, height - AXIS_HEIGHT, height - AXIS_HEIGHT + 4);
      context.fillStyle = this.#colours.muted;
      context.fillText(shortClock(second), x, height - 7);
    }
  }

  #drawSegments(start, end, height) {
    const context = this.#context;
    context.fillStyle = this.#colours.mark;
    for (const segment of this.#segments) {
      if (segment.end < start || segment.start > end) continue;
      const x = (segment.start - start) * PIXELS_PER_SECOND;
      context.globalAlpha = 0.5;
      context.fillRect(x, height - AXIS_HEIGHT - 2, Math.max(2, (segment.end - segment.start) * PIXELS_PER_SECOND), 2);
    }
    context.globalAlpha = 1;
  }

  #drawMarks(start, end, laneTop) {
    const context = this.#context;
    context.font = `600 13px ${this.#colours.font}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    this.#placeMarks();
    for (let i = firstAfter(this.#marks, start - 0.2); i < this.#marks.length && this.#marks[i].time <= end + 0.2; i++) {
      const mark = this.#marks[i];
      const x = (mark.x / PIXELS_PER_SECOND - start) * PIXELS_PER_SECOND;
      const y = laneTop + 6 + (mark.row + 0.5) * ROW_HEIGHT;
      context.strokeStyle = this.#colours.mark;
      context.globalAlpha = mark.startsWord ? 0.85 : 0.4;
      line(context, x, 0, laneTop);
      context.globalAlpha = 0.25;
      line(context, x, laneTop, y - 8);
      context.globalAlpha = 1;
      context.fillStyle = this.#colours.text;
      context.fillText(mark.text, x, y);
    }
  }

  // Each character goes to the highest row with room for it.
  #placeMarks() {
    const ends = new Array(ROWS).fill(-Infinity);
    let first = this.#marks.length;
    while (first > 0 && this.#marks[first - 1].row < 0) first--;
    for (const mark of this.#marks.slice(Math.max(0, first - 3 * ROWS), first)) ends[mark.row] = mark.x + mark.half;
    for (let i = first; i < this.#marks.length; i++) {
      const mark = this.#marks[i];
      mark.x = mark.time * PIXELS_PER_SECOND;
      mark.half = this.#context.measureText(mark.text).width / 2 + 1;
      const free = ends.findIndex((end) => end < mark.x - mark.half);
      mark.row = free >= 0 ? free : ends.indexOf(Math.min(...ends));
      ends[mark.row] = mark.x + mark.half;
    }
  }

  #drawNow(start, laneTop) {
    const since = Math.min((performance.now() - this.#heardAt) / 1000, 0.1);
    const x = (this.duration + since - start) * PIXELS_PER_SECOND;
    this.#context.fillStyle = this.#colours.mark;
    this.#context.fillRect(x, 0, 1.5, laneTop);
  }
}

function line(context, x, top, bottom) {
  context.beginPath();
  context.moveTo(x, top);
  context.lineTo(x, bottom);
  context.stroke();
}

function firstAfter(marks, time) {
  let [low, high] = [0, marks.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (marks[middle].time < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

// 256 colours between the given ones (#rrggbb), as one flat array.
function palette(stops) {
  const rgb = stops.map((stop) => [1, 3, 5].map((at) => parseInt(stop.slice(at, at + 2), 16)));
  const colours = new Uint8ClampedArray(3 * 256);
  for (let i = 0; i < 256; i++) {
    const position = (i / 255) * (rgb.length - 1);
    const left = Math.min(Math.floor(position), rgb.length - 2);
    for (let c = 0; c < 3; c++) colours[3 * i + c] = rgb[left][c] + (rgb[left + 1][c] - rgb[left][c]) * (position - left);
  }
  return colours;
}
