// A session without sockets: what to send next, what to make of what comes, where to go on after a connection broke.
// The same decisions as client/conversation.py; one file of test cases holds for both.

const LARGEST_FRAME = 32768; // bytes
const PAUSE = 0.2; // seconds after a segment's end that still belong to it
const GONE = ["unknown_session", "resume_gap"]; // errors after which only a new session helps

export const OPTIONS = {
  sample_rate: 16000,
  encoding: "pcm_s16le",
  channels: 1,
  interim: true,
  words: true,
  endpointing: 0.8,
  beam: 1,
  status_interval: 1,
};

export class ServerError extends Error {
  constructor(code, message) {
    super(message);
    this.name = "ServerError";
    this.code = code;
  }
}

// The audio that may have to be sent again: a bounded window of one long stream of bytes, addressed by position.
export class AudioBuffer {
  start = 0;
  end = 0;
  #pieces = [];

  get length() {
    return this.end - this.start;
  }

  append(data) {
    if (data.length) {
      this.#pieces.push(data);
      this.end += data.length;
    }
  }

  read(position, most) {
    const found = new Uint8Array(Math.min(most, this.end - position));
    let filled = 0;
    let at = this.start;
    for (const piece of this.#pieces) {
      if (filled === found.length) break;
      if (at + piece.length > position) {
        const from = Math.max(0, position - at);
        const part = piece.subarray(from, from + found.length - filled);
        found.set(part, filled);
        filled += part.length;
      }
      at += piece.length;
    }
    return found;
  }

  forget(position) {
    while (this.#pieces.length && this.start < position) {
      const piece = this.#pieces[0];
      const cut = Math.min(piece.length, position - this.start);
      if (cut < piece.length) this.#pieces[0] = piece.subarray(cut);
      else this.#pieces.shift();
      this.start += cut;
    }
  }
}

export class Conversation {
  model = "";
  isOpen = false; // a server has taken it
  isOver = false; // everything has been said
  buffer = new AudioBuffer();
  #remote = remote(0);
  #acknowledged = 0; // up to here, the server has the audio
  #settled = 0; // up to here, segments have been made of it
  #flushes = [];
  #stopping = false;
  #segments = 0;
  #lost = 0;

  constructor(options, bufferSeconds) {
    const unknown = Object.keys(options).find((name) => !(name in OPTIONS));
    if (unknown) throw new TypeError(`${unknown}: no such option; expected one of ${Object.keys(OPTIONS).join(", ")}`);
    this.options = { ...OPTIONS, ...options };
    this.frameBytes = ({ pcm_s16le: 2, pcm_f32le: 4 }[this.options.encoding] ?? 1) * this.options.channels;
    this.bytesPerSecond = this.frameBytes * this.options.sample_rate;
    this.bound = bufferSeconds * this.bytesPerSecond;
  }

  // ---------------------------------------------------------------- from the user
  append(audio) {
    if (this.#stopping) throw new Error("audio came after stop()");
    this.buffer.append(audio);
    const excess = this.buffer.length - this.bound;
    if (excess > 0) this.buffer.forget(Math.min(this.buffer.start + excess, this.#acknowledged));
  }

  flush(id) {
    this.#flushes.push({ id, position: this.buffer.end, sent: false });
  }

  stop() {
    this.#stopping = true;
  }

  get hasRoom() {
    return this.buffer.end - this.#acknowledged <= this.bound;
  }

  get isReady() {
    return this.#remote.cursor !== null;
  }

  // ---------------------------------------------------------------- to the server
  opening() {
    this.#remote.cursor = null;
    this.#remote.stopSent = false;
    if (this.#remote.name) return { session: this.#remote.name, seq: String(this.#remote.seq) };
    return Object.fromEntries(Object.entries(this.options).map(([name, value]) => [name, String(value)]));
  }

  // A string, a Uint8Array, or null if there is nothing to send now.
  nextFrame() {
    const { cursor, stopSent } = this.#remote;
    if (cursor === null || stopSent) return null;
    const flush = this.#flushes.find((each) => !each.sent);
    if (flush && flush.position <= cursor) {
      flush.sent = true;
      return JSON.stringify({ type: "flush", id: flush.id });
    }
    const end = flush ? flush.position : this.buffer.end;
    if (cursor < end) {
      const data = this.buffer.read(cursor, Math.min(LARGEST_FRAME, end - cursor));
      this.#remote.cursor += data.length;
      return data;
    }
    if (!this.#stopping) return null;
    this.#remote.stopSent = true;
    return JSON.stringify({ type: "stop" });
  }

  // ---------------------------------------------------------------- from the server
  // Returns events; throws ServerError if the server ends it all.
  hear(frame) {
    const message = JSON.parse(frame);
    if (!this.#remote.name && !["ready", "error"].includes(message.type)) return []; // of a session that we have given up
    if (message.seq !== undefined) {
      if (message.seq <= this.#remote.seq) return [];
      this.#remote.seq = message.seq;
    }
    switch (message.type) {
      case "ready":
        return this.#ready(message);
      case "text":
        this.#remote.said = true;
        return [this.#text(message)];
      case "segment":
        return [this.#segment(message)];
      case "flushed":
        return this.#flushed(message);
      case "status":
        this.#acknowledge(this.#remote.base + message.bytes);
        return [
          {
            type: "status",
            received: this.#shift(message.received),
            processed: this.#shift(message.processed),
            draining: message.draining ?? false,
          },
        ];
      case "error":
        if (!message.fatal) return [{ type: "complaint", code: message.code, message: message.message }];
        this.refused(message.code, message.message);
        return [];
      case "closed":
        return this.#closed(message);
      default:
        return []; // for clients newer than us
    }
  }

  #ready(message) {
    const state = this.#remote;
    const isFirst = !this.isOpen;
    const isNew = message.session !== state.name;
    state.name = message.session;
    this.model = message.model;
    this.isOpen = true;
    state.cursor = state.base + message.bytes;
    this.#acknowledged = Math.max(this.#acknowledged, state.cursor);
    // a flush that the server may not have got is sent again; if it had, a second one at the same place says nothing
    for (const flush of this.#flushes) flush.sent = !isNew && flush.position < state.cursor;
    if (isFirst) return [];
    const restarted = isNew && state.said;
    const lost = this.#lost / this.bytesPerSecond;
    this.#lost = 0;
    state.said = state.said && !isNew;
    return [{ type: "resumed", restarted, lost }];
  }

  #text(message) {
    const [time, heard] = [this.#shift(message.time), this.#shift(message.heard ?? message.time)];
    return { type: "text", text: message.text, time, confidence: message.confidence, heard };
  }

  #segment(message) {
    const words = (message.words ?? []).map((word) => ({
      text: word.text,
      start: this.#shift(word.start),
      end: this.#shift(word.end),
      confidence: word.confidence,
    }));
    const [start, end] = [this.#shift(message.start), this.#shift(message.end)];
    this.#remote.said = false;
    this.#segments += 1;
    this.#settle(Math.round((end + PAUSE) * this.options.sample_rate) * this.frameBytes);
    return { type: "segment", text: message.text, start, end, confidence: message.confidence, words };
  }

  #flushed(message) {
    const flush = this.#flushes.find((each) => each.id === message.id);
    if (!flush) return [];
    this.#flushes.splice(this.#flushes.indexOf(flush), 1);
    this.#settle(flush.position);
    return [{ type: "flushed", id: flush.id }];
  }

  #closed(message) {
    if (message.reason === "error") throw new ServerError("closed", "The server ended the session because of an error.");
    const end = this.#remote.base + message.bytes;
    this.#acknowledge(end);
    this.#settled = end;
    this.buffer.forget(end);
    if (!this.#stopping || end < this.buffer.end) {
      this.#remote = remote(end);
      return [];
    }
    this.isOver = true;
    const late = this.#flushes.map((flush) => ({ type: "flushed", id: flush.id }));
    this.#flushes = [];
    const [received, processed] = [this.#shift(message.received), this.#shift(message.processed)];
    return [...late, { type: "closed", received, processed, segments: this.#segments }];
  }

  // ---------------------------------------------------------------- when things break
  // A connection was turned away or ended with that error. Returns if another attempt makes sense.
  refused(code, message) {
    if (GONE.includes(code) && this.#remote.name) {
      let base = Math.max(this.#settled, this.buffer.start);
      base += (this.frameBytes - (base % this.frameBytes)) % this.frameBytes;
      this.#lost += base - this.#settled;
      this.#remote = remote(base, this.#remote.said);
      this.#acknowledged = base; // nobody has heard what comes after
    } else if (code !== "slow_reader") {
      throw new ServerError(code, message);
    }
  }

  // ---------------------------------------------------------------- positions
  #acknowledge(position) {
    this.#acknowledged = Math.max(this.#acknowledged, Math.min(position, this.buffer.end));
  }

  // Audio before `position` will not be needed again, whatever happens.
  #settle(position) {
    const known = Math.max(this.#acknowledged, this.#remote.cursor ?? 0);
    const pending = this.#flushes.map((flush) => flush.position);
    this.#settled = Math.max(this.#settled, Math.min(position, known, ...pending));
    this.buffer.forget(Math.min(this.#settled, this.#acknowledged));
  }

  #shift(seconds) {
    return Math.round((this.#remote.base / this.bytesPerSecond + seconds) * 1000) / 1000;
  }
}

// The server's session, as far as we know it.
function remote(base, said = false) {
  return { base, said, name: "", seq: 0, cursor: null, stopSent: false };
}
