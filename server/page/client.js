// Talks to a Monoscribe server, from any page:
//
//   const session = await connect();
//   await session.send(samples);            // Float32Array at 16 kHz, or whatever the options say
//   session.stop();
//   for await (const event of session) …    // text, segment, status, interrupted, resumed, closed
//
// A connection that breaks is resumed: nothing doubled, nothing lost.

import { Conversation, ServerError } from "./conversation.js";

export { ServerError };

const OPEN_MS = 10_000;
const SILENCE_MS = 30_000; // a server that says nothing for so long is gone: it sends a status every second
const KEEPALIVE_MS = 10_000;
const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 3_000;
const FULL_SOCKET = 256 * 1024; // bytes that a socket may hold before we wait
const MOST_UNREAD = 100_000; // events

export class ConnectionFailedError extends Error {
  name = "ConnectionFailedError";
}

// The stream of the server that this module came from.
export function ownServer() {
  const address = new URL("./v1/stream", import.meta.url);
  address.protocol = address.protocol.replace("http", "ws");
  return address.href;
}

// `options`: sample_rate, encoding, channels, interim, words, endpointing, beam (docs/protocol.md), and
// apiKey, bufferSeconds (audio kept for a resume), reconnectSeconds (how long to try).
export async function connect(url = ownServer(), { apiKey = "", bufferSeconds = 600, reconnectSeconds = 60, ...options } = {}) {
  const session = new Session(url, apiKey, new Conversation(options, bufferSeconds), reconnectSeconds);
  await session.opened;
  return session;
}

class Session {
  #url;
  #apiKey;
  #conversation;
  #reconnectMs;
  #events = [];
  #waiting = new Set(); // functions to call when something changed
  #error = null;
  #closed = false;
  #socket = null;
  #pumping = false;
  #flushes = 0;
  #flushed = new Set();

  constructor(url, apiKey, conversation, reconnectSeconds) {
    this.#url = url;
    this.#apiKey = apiKey;
    this.#conversation = conversation;
    this.#reconnectMs = 1000 * reconnectSeconds;
    this.#run();
    this.opened = this.#until(() => conversation.isOpen).then(() => this.#check());
  }

  get model() {
    return this.#conversation.model;
  }

  // Float32Array (-1..1), Int16Array, or bytes in the session's encoding. Waits while the buffer is full.
  async send(audio) {
    this.#check();
    if (this.#events.length > MOST_UNREAD) throw new Error("Too many events are unread; iterate over the session while you send.");
    await this.#until(() => this.#conversation.hasRoom);
    this.#check();
    this.#conversation.append(toBytes(audio, this.#conversation.options.encoding));
    this.#pump();
  }

  // Everything sent so far is finalised, as if the audio ended here; resolves when it has been said.
  async flush() {
    this.#check();
    const id = `flush-${++this.#flushes}`;
    this.#conversation.flush(id);
    this.#pump();
    await this.#until(() => this.#flushed.has(id));
    if (!this.#flushed.delete(id)) this.#check();
  }

  // No more audio will come. What is still to be said comes as events, the last of them `closed`.
  stop() {
    this.#conversation.stop();
    this.#pump();
  }

  // Ends the session at once.
  close() {
    this.#closed = true;
    this.#error ??= new Error("The session was closed.");
    this.#socket?.close(1000);
    this.#notify();
  }

  async *[Symbol.asyncIterator]() {
    while (true) {
      await this.#until(() => this.#events.length || this.#conversation.isOver);
      if (this.#events.length) yield this.#events.shift();
      else if (this.#conversation.isOver) return;
      else this.#check();
    }
  }

  // ---------------------------------------------------------------- behind it
  async #run() {
    let brokenAt = null;
    let wait = FIRST_WAIT_MS;
    while (!this.#conversation.isOver && !this.#closed) {
      let worked = false;
      let reason = "the server ended the connection";
      try {
        worked = await this.#connectOnce();
      } catch (error) {
        if (!(error instanceof ConnectionFailedError) || !this.#conversation.isOpen) return this.#fail(error);
        reason = error.message;
      }
      if (this.#conversation.isOver || this.#closed) break;
      if (!this.#conversation.isOpen) return this.#fail(new ConnectionFailedError("The server ended the connection at once."));
      if (worked || brokenAt === null) {
        [brokenAt, wait] = [performance.now(), FIRST_WAIT_MS];
        this.#tell([{ type: "interrupted", reason }]);
      }
      if (performance.now() - brokenAt > this.#reconnectMs) {
        return this.#fail(new ConnectionFailedError(`No connection for ${this.#reconnectMs / 1000} seconds.`));
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(2 * wait, LONGEST_WAIT_MS);
    }
  }

  // From the handshake to the end of one connection; returns whether the server was ever ready on it.
  #connectOnce() {
    return new Promise((resolve, reject) => {
      const address = new URL(this.#url);
      for (const [name, value] of Object.entries(this.#conversation.opening())) address.searchParams.set(name, value);
      if (this.#apiKey) address.searchParams.set("api_key", this.#apiKey);
      const socket = new WebSocket(address);
      socket.binaryType = "arraybuffer";
      this.#socket = socket;
      let worked = false;
      let heardAt = performance.now();
      const openTimer = setTimeout(() => socket.close(), OPEN_MS);
      const watch = setInterval(() => {
        if (performance.now() - heardAt > SILENCE_MS) end(() => resolve(worked));
        else if (socket.readyState === WebSocket.OPEN) socket.send('{"type":"keepalive"}');
      }, KEEPALIVE_MS);
      const end = (settle) => {
        clearTimeout(openTimer);
        clearInterval(watch);
        socket.onmessage = socket.onclose = null;
        socket.close();
        settle();
      };
      socket.onopen = () => clearTimeout(openTimer);
      socket.onmessage = ({ data }) => {
        heardAt = performance.now();
        try {
          this.#tell(this.#conversation.hear(data));
        } catch (error) {
          const waits = error.code === "at_capacity" && this.#conversation.isOpen; // whoever comes back waits for room
          end(() => (waits ? resolve(worked) : reject(error)));
          return;
        }
        worked ||= this.#conversation.isReady;
        this.#pump();
      };
      socket.onclose = () =>
        end(() => (worked ? resolve(true) : reject(new ConnectionFailedError("The server cannot be reached."))));
    });
  }

  async #pump() {
    if (this.#pumping) return;
    this.#pumping = true;
    try {
      const socket = this.#socket;
      while (socket === this.#socket && socket?.readyState === WebSocket.OPEN) {
        if (socket.bufferedAmount > FULL_SOCKET) {
          await new Promise((resolve) => setTimeout(resolve, 20));
          continue;
        }
        const frame = this.#conversation.nextFrame();
        if (frame === null) return;
        socket.send(frame);
      }
    } finally {
      this.#pumping = false;
    }
  }

  #tell(events) {
    for (const event of events) if (event.type === "flushed") this.#flushed.add(event.id);
    this.#events.push(...events);
    this.#notify();
  }

  #fail(error) {
    this.#error ??= error;
    this.#notify();
  }

  #check() {
    if (this.#error) throw this.#error;
  }

  #notify() {
    for (const call of [...this.#waiting]) call();
  }

  #until(condition) {
    return new Promise((resolve) => {
      const look = () => {
        if (!condition() && !this.#error) return;
        this.#waiting.delete(look);
        resolve();
      };
      this.#waiting.add(look);
      look();
    });
  }
}

function toBytes(audio, encoding) {
  if (audio instanceof Float32Array && encoding === "pcm_s16le") {
    const samples = new Int16Array(audio.length);
    for (let i = 0; i < audio.length; i++) samples[i] = Math.max(-32768, Math.min(32767, Math.round(audio[i] * 32768)));
    return new Uint8Array(samples.buffer);
  }
  if (audio instanceof ArrayBuffer) return new Uint8Array(audio.slice(0));
  return new Uint8Array(audio.buffer.slice(audio.byteOffset, audio.byteOffset + audio.byteLength));
}
