// What the page shows of its state: the sentence at the top, figures, complaints, which buttons can be pressed.

import { shortClock } from "./formats.js";

const LATE = 2; // seconds of lag worth a warning

export const $ = (id) => document.getElementById(id);

// `kind`: idle, waiting, busy, lost (the server) or done
export function show(kind, text) {
  $("state").dataset.kind = kind;
  $("state-text").textContent = text;
}

export const isLost = () => $("state").dataset.kind === "lost";

export function showBusy(isBusy) {
  $("record").setAttribute("aria-pressed", String(isBusy));
  $("record-text").textContent = isBusy ? "Stop" : "Start";
  $("microphone").disabled = $("file").disabled = isBusy;
  $("open").classList.toggle("disabled", isBusy);
  if (isBusy) return;
  $("progress").hidden = true;
  showLag(null);
}

export function complain(sentence) {
  $("problem-text").textContent = sentence;
  $("key-form").hidden = true;
  $("problem").hidden = false;
}

export function askForKey(sentence) {
  complain(sentence);
  $("key-form").hidden = false;
  $("key").focus();
}

export function dismiss() {
  $("problem").hidden = true;
}

// Seconds; null while there is no sound.
export function showElapsed(seconds) {
  $("empty-sound").hidden = seconds !== null;
  $("elapsed").textContent = shortClock(seconds ?? 0);
}

export function showLag(seconds) {
  $("lag").textContent = seconds === null ? "–" : `${Math.max(0, seconds).toFixed(1)} s`;
  $("lag").classList.toggle("late", seconds > LATE);
}

export function showProgress(seconds, total = $("progress").max) {
  $("progress").max = total;
  $("progress").value = seconds;
}

export function showText(transcript, canClear) {
  $("words").textContent = String(transcript.words);
  $("empty-text").hidden = !transcript.isEmpty;
  for (const button of document.querySelectorAll("#copy, [data-format]")) button.disabled = !transcript.segments.length;
  $("clear").disabled = !canClear;
}

export function showMicrophones(devices, chosen) {
  const options = devices
    .filter((device) => device.deviceId !== "default")
    .map((device, index) => new Option(device.label || `Microphone ${index + 1}`, device.deviceId));
  $("microphone").replaceChildren(new Option("Default microphone", ""), ...options);
  $("microphone").value = options.some((option) => option.value === chosen) ? chosen : "";
}

// Calls `dropped(file)` for what is dragged onto the page.
export function setUpDrop(dropped) {
  let depth = 0; // dragenter and dragleave come for every element on the way
  const over = (shown) => ($("drop").hidden = !shown);
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragenter", (event) => hasFiles(event) && over(++depth > 0));
  addEventListener("dragleave", (event) => hasFiles(event) && over(--depth > 0));
  addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    over((depth = 0));
    if (event.dataTransfer.files.length) dropped(event.dataTransfer.files[0]);
  });
}
