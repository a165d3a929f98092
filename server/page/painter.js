// Draws the stretch of a timeline that is to be seen.

import { BANDS, COLUMNS_PER_SECOND } from "./spectrum.js";
import { shortClock } from "./formats.js";

export const PIXELS_PER_SECOND = 150;
const ROWS = 4; // of characters, so that neighbours do not cover each other
const ROW_HEIGHT = 17;
const AXIS_HEIGHT = 20;

export class Painter {
  #canvas;
  #context;
  #strip = document.createElement("canvas"); // what is visible, one pixel per column and band
  #colours;

  constructor(canvas) {
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d");
    this.recolour();
  }

  // Seconds that fit.
  get span() {
    return this.#canvas.clientWidth / PIXELS_PER_SECOND;
  }

  recolour() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    this.#colours = {
      palette: palette(["--sound-0", "--sound-1", "--sound-2", "--sound-3", "--sound-4"].map(value)),
      text: value("--text"),
      muted: value("--muted"),
      line: value("--line"),
      mark: value("--mark"),
      font: value("--mono"),
    };
  }

  resize() {
    const scale = devicePixelRatio || 1;
    this.#canvas.width = Math.round(this.#canvas.clientWidth * scale);
    this.#canvas.height = Math.round(this.#canvas.clientHeight * scale);
  }

  // From `start` on. `columns` of sound, of which the first `dropped` are no longer there; `now` is null unless it is to be seen.
  draw(start, { columns, dropped, segments, marks, now }) {
    const [width, height] = [this.#canvas.clientWidth, this.#canvas.clientHeight];
    if (!width || !height) return;
    const scale = devicePixelRatio || 1;
    const end = start + this.span;
    const laneTop = height - AXIS_HEIGHT - ROWS * ROW_HEIGHT - 8;
    this.#context.setTransform(scale, 0, 0, scale, 0, 0);
    this.#context.clearRect(0, 0, width, height);
    this.#drawSound(start, end, laneTop, columns, dropped);
    this.#drawAxis(start, end, height);
    this.#drawSegments(start, end, height, segments);
    this.#drawMarks(start, end, laneTop, marks);
    if (now !== null) {
      this.#context.fillStyle = this.#colours.mark;
      this.#context.fillRect((now - start) * PIXELS_PER_SECOND, 0, 1.5, laneTop);
    }
  }

  #drawSound(start, end, height, columns, dropped) {
    const context = this.#context;
    const first = Math.max(dropped, Math.floor(start * COLUMNS_PER_SECOND));
    const last = Math.min(dropped + columns.length, Math.ceil(end * COLUMNS_PER_SECOND));
    context.fillStyle = `rgb(${this.#colours.palette.slice(0, 3).join(",")})`;
    context.fillRect(0, 0, this.#canvas.clientWidth, height);
    if (last <= first) return;
    this.#strip.width = last - first;
    this.#strip.height = BANDS;
    const image = new ImageData(last - first, BANDS);
    const pixels = image.data;
    const colours = this.#colours.palette;
    for (let column = first; column < last; column++) {
      const values = columns[column - dropped];
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

  #drawSegments(start, end, height, segments) {
    const context = this.#context;
    context.fillStyle = this.#colours.mark;
    for (const segment of segments) {
      if (segment.end < start || segment.start > end) continue;
      const x = (segment.start - start) * PIXELS_PER_SECOND;
      context.globalAlpha = 0.5;
      context.fillRect(x, height - AXIS_HEIGHT - 2, Math.max(2, (segment.end - segment.start) * PIXELS_PER_SECOND), 2);
    }
    context.globalAlpha = 1;
  }

  #drawMarks(start, end, laneTop, marks) {
    const context = this.#context;
    context.font = `600 13px ${this.#colours.font}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    this.#place(marks);
    for (let i = firstAfter(marks, start - 0.2); i < marks.length && marks[i].time <= end + 0.2; i++) {
      const mark = marks[i];
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
  #place(marks) {
    const ends = new Array(ROWS).fill(-Infinity);
    let first = marks.length;
    while (first > 0 && marks[first - 1].row < 0) first--;
    for (const mark of marks.slice(Math.max(0, first - 3 * ROWS), first)) ends[mark.row] = mark.x + mark.half;
    for (let i = first; i < marks.length; i++) {
      const mark = marks[i];
      mark.x = mark.time * PIXELS_PER_SECOND;
      mark.half = this.#context.measureText(mark.text).width / 2 + 1;
      const free = ends.findIndex((end) => end < mark.x - mark.half);
      mark.row = free >= 0 ? free : ends.indexOf(Math.min(...ends));
      ends[mark.row] = mark.x + mark.half;
    }
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
