// The page: a button, a picture of the sound, and the text as it grows.

import { connect, ConnectionFailedError, ServerError } from "./client.js";
import { asSrt, asText, asVtt } from "./formats.js";
import { listMicrophones, Microphone } from "./microphone.js";
import { decode, pieces, RATE } from "./recording.js";
import { Timeline } from "./timeline.js";
import { Transcript } from "./transcript.js";
import { setUpTheme } from "./theme.js";
import * as view from "./view.js";

const FILE_BUFFER_SECONDS = 20; // the picture is not to run far ahead of the text
const WRITERS = { txt: asText, srt: asSrt, vtt: asVtt };

const { $ } = view;
const timeline = new Timeline($("timeline"), (following) => ($("follow").hidden = following));
const transcript = new Transcript($("segments"), (seconds) => timeline.show(seconds));

let job = null; // what runs: {stop()}; null if nothing does
let source = ""; // of what is on the page: "microphone" or a file's name
let key = new URLSearchParams(location.search).get("api_key") ?? sessionStorage.getItem("key") ?? "";
let retry = null; // what to do again once there is a key

// ---------------------------------------------------------------- a microphone
async function record() {
  if (source !== "microphone") clear();
  source = "microphone";
  const offset = timeline.duration; // a second recording goes on where the first ended
  let session = null;
  let stopped = false;
  let gaveUp = false;
  const early = []; // what is said before the server is there is heard, too
  const heard = (samples, rate) => {
    if (!timeline.isLive) timeline.begin(rate, true);
    timeline.hear(samples);
    view.showElapsed(timeline.duration);
    if (session) session.send(samples).catch(() => {}); // whoever iterates hears of it
    else early.push(samples);
  };
  begin({
    stop: async () => {
      if (stopped) {
        gaveUp = view.isLost(); // a second press does not wait for a server that is gone
        if (gaveUp) session?.close();
        return;
      }
      stopped = true;
      if (!view.isLost()) view.show("waiting", "Finishing");
      await microphone?.stop();
      session?.stop();
    },
  });
  view.show("waiting", "Waiting for the microphone");
  let microphone;
  const own = job;
  try {
    microphone = await Microphone.open($("microphone").value, heard, () => {
      view.complain("The microphone is gone. What it recorded has been transcribed.");
      own.stop();
    });
    if (stopped) await microphone.stop();
    fillMicrophones();
    view.show("waiting", "Connecting");
    const opened = await connect(undefined, { sample_rate: microphone.rate, beam: 0, apiKey: key });
    while (early.length) await opened.send(early.shift());
    session = opened;
    if (stopped) session.stop();
    else view.show("busy", "Listening");
    await listen(session, offset, () => (stopped ? "Finishing" : "Listening"));
    view.show("done", "Done");
  } catch (error) {
    if (gaveUp) view.show("done", "Stopped");
    else fail(error, record);
  } finally {
    stopped = true;
    await microphone?.stop();
    finish();
  }
}

// ---------------------------------------------------------------- a file
async function transcribe(file) {
  clear();
  source = file.name;
  let session = null;
  let cancelled = false;
  begin({
    stop: () => {
      cancelled = true;
      session?.stop();
    },
  });
  try {
    view.show("waiting", `Reading ${file.name}`);
    const samples = await decode(file);
    session = await connect(undefined, { sample_rate: RATE, beam: 0, apiKey: key, bufferSeconds: FILE_BUFFER_SECONDS });
    timeline.begin(RATE, false);
    view.show("busy", `Transcribing ${file.name}`);
    $("progress").hidden = false;
    view.showProgress(0, samples.length / RATE);
    const sending = send(session, samples, () => cancelled);
    await listen(session, 0, () => `Transcribing ${file.name}`);
    await sending;
    view.show("done", cancelled ? "Stopped" : "Done");
  } catch (error) {
    fail(error, () => transcribe(file));
  } finally {
    session?.close();
    finish();
  }
}

async function send(session, samples, isCancelled) {
  for (const piece of pieces(samples)) {
    if (isCancelled()) return;
    await session.send(piece);
    timeline.hear(piece);
    view.showElapsed(timeline.duration);
  }
  session.stop();
}

// ---------------------------------------------------------------- what the server says
async function listen(session, offset, doing) {
  $("model").textContent = session.model ? ` · model ${session.model}` : "";
  for await (const event of session) {
    switch (event.type) {
      case "text":
        transcript.append(event.text, offset + event.heard);
        timeline.mark(event.text, offset + event.heard);
        refreshText();
        break;
      case "segment":
        settle(shifted(event, offset));
        break;
      case "status":
        view.showLag(timeline.duration - offset - event.processed);
        view.showProgress(event.processed);
        break;
      case "interrupted":
        view.show("lost", "Connection lost, trying again");
        break;
      case "resumed":
        if (event.restarted) {
          transcript.void();
          timeline.unmark();
        }
        view.show("busy", doing());
        break;
    }
  }
}

function settle(segment) {
  transcript.settle(segment);
  timeline.settle(segment);
  refreshText();
}

function shifted(segment, offset) {
  const move = (part) => ({ ...part, start: part.start + offset, end: part.end + offset });
  return { ...move(segment), words: segment.words.map(move) };
}

// ---------------------------------------------------------------- beginnings and ends
function begin(started) {
  job = started;
  view.dismiss();
  view.showBusy(true);
  refreshText();
  navigator.wakeLock?.request("screen").then(
    (lock) => (started.release = () => lock.release()),
    () => {}, // a screen that goes dark is no reason to stop
  );
}

function finish() {
  job?.release?.();
  job = null;
  timeline.end();
  if (transcript.unfinished) settle(transcript.unfinished); // the server is gone
  transcript.void();
  view.showBusy(false);
  refreshText();
}

function fail(error, again) {
  const isKnown = error instanceof ServerError || ["MicrophoneError", "FileError"].includes(error.name);
  if (!isKnown) console.error(error);
  view.show("idle", "Ready");
  if (error.code === "unauthorized") {
    retry = again;
    view.askForKey(key ? "The server does not know that API key." : "This server wants an API key.");
  } else if (error instanceof ConnectionFailedError) view.complain(`${error.message} Is it running, and can this device reach it?`);
  else view.complain(error.message);
}

function clear() {
  transcript.clear();
  timeline.clear();
  source = "";
  view.showElapsed(null);
  refreshText();
}

function refreshText() {
  view.showText(transcript, !job && timeline.duration > 0);
}

// ---------------------------------------------------------------- what the user does
async function fillMicrophones() {
  view.showMicrophones(await listMicrophones(), $("microphone").value || localStorage.getItem("microphone") || "");
}

function download(format) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([WRITERS[format](transcript.segments)], { type: "text/plain;charset=utf-8" }));
  link.download = `${source === "microphone" ? "transcript" : source.replace(/\.[^.]*$/, "")}.${format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function copy() {
  const text = asText(transcript.segments);
  try {
    await navigator.clipboard.writeText(text);
    $("copy").textContent = "Copied";
    setTimeout(() => ($("copy").textContent = "Copy"), 1500);
  } catch {
    view.complain("The browser does not let this page copy. Select the text, or download it.");
  }
}

$("record").addEventListener("click", () => (job ? job.stop() : record()));
$("file").addEventListener("change", ({ target }) => {
  const [file] = target.files;
  target.value = "";
  if (file && !job) transcribe(file);
});
$("microphone").addEventListener("change", () => localStorage.setItem("microphone", $("microphone").value));
$("copy").addEventListener("click", copy);
$("clear").addEventListener("click", clear);
$("follow").addEventListener("click", () => timeline.follow());
$("dismiss").addEventListener("click", view.dismiss);
for (const button of document.querySelectorAll("[data-format]")) button.addEventListener("click", () => download(button.dataset.format));
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value.trim();
  sessionStorage.setItem("key", key);
  view.dismiss();
  retry?.();
});
addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey;
  if (event.key.toLowerCase() === "r" && !isTyping && !event.repeat) $("record").click();
});
addEventListener("beforeunload", (event) => job && event.preventDefault());
navigator.mediaDevices?.addEventListener("devicechange", fillMicrophones);
view.setUpDrop((file) => (job ? view.complain("Stop what is running first.") : transcribe(file)));
setUpTheme($("theme"), () => timeline.recolour());
fillMicrophones();
refreshText();
document.documentElement.dataset.ready = "true";
