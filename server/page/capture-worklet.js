// Runs in the audio thread: gathers the microphone's samples into pieces worth sending.

const PIECE_SECONDS = 0.05;

class Capture extends AudioWorkletProcessor {
  #piece = new Float32Array(Math.round(PIECE_SECONDS * sampleRate));
  #filled = 0;
  #running = true;

  constructor() {
    super();
    this.port.onmessage = () => {
      // stop: what is there goes out, and then an empty piece
      this.#running = false;
      this.port.postMessage(this.#piece.slice(0, this.#filled));
      this.port.postMessage(null);
    };
  }

  process([channels]) {
    if (!this.#running) return false;
    const count = channels.length;
    const length = count ? channels[0].length : 0;
    for (let i = 0; i < length; i++) {
      let sum = 0;
      for (const channel of channels) sum += channel[i];
      this.#piece[this.#filled++] = sum / count;
      if (this.#filled === this.#piece.length) {
        this.port.postMessage(this.#piece.slice());
        this.#filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("capture", Capture);
