// Samples to columns of a spectrogram: loudness in mel bands, 0..255.

export const BANDS = 72;
export const COLUMNS_PER_SECOND = 62.5;
const TOP_HZ = 8000; // what the recogniser hears
const QUIETEST_DB = -82;
const LOUDEST_DB = -18;

export class Spectrum {
  #size;
  #hop;
  #window;
  #bands;
  #samples;
  #filled = 0;
  #tables;

  constructor(rate) {
    this.#hop = Math.round(rate / COLUMNS_PER_SECOND);
    this.#size = 2 ** Math.ceil(Math.log2(rate * 0.025));
    this.#window = Float32Array.from({ length: this.#size }, (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / this.#size));
    this.#bands = melBands(rate, this.#size);
    this.#samples = new Float32Array(this.#size);
    this.#tables = twiddles(this.#size);
  }

  // Calls `column(Uint8Array)` for each column that the samples complete; from the lowest band to the highest.
  accept(samples, column) {
    let at = 0;
    while (at < samples.length) {
      const part = samples.subarray(at, at + this.#size - this.#filled);
      this.#samples.set(part, this.#filled);
      this.#filled += part.length;
      at += part.length;
      if (this.#filled === this.#size) {
        column(this.#column());
        this.#samples.copyWithin(0, this.#hop);
        this.#filled -= this.#hop;
      }
    }
  }

  #column() {
    const real = new Float32Array(this.#size);
    const imaginary = new Float32Array(this.#size);
    for (let i = 0; i < this.#size; i++) real[i] = this.#samples[i] * this.#window[i];
    transform(real, imaginary, this.#tables);
    const column = new Uint8Array(BANDS);
    const scale = (4 / this.#size) ** 2; // a full-scale sine is 0 dB
    for (let band = 0; band < BANDS; band++) {
      const { from, weights } = this.#bands[band];
      let power = 0;
      for (let k = 0; k < weights.length; k++) power += weights[k] * (real[from + k] ** 2 + imaginary[from + k] ** 2);
      const db = 10 * Math.log10(power * scale + 1e-12);
      column[band] = Math.max(0, Math.min(255, (255 * (db - QUIETEST_DB)) / (LOUDEST_DB - QUIETEST_DB)));
    }
    return column;
  }
}

function melBands(rate, size) {
  const toMel = (hz) => 1127 * Math.log1p(hz / 700);
  const toBin = (mel) => ((700 * Math.expm1(mel / 1127)) * size) / rate;
  const top = toMel(Math.min(TOP_HZ, rate / 2));
  const bottom = toMel(60);
  const edge = (number) => toBin(bottom + ((top - bottom) * number) / (BANDS + 1));
  return Array.from({ length: BANDS }, (_, band) => {
    const [left, centre, right] = [edge(band), edge(band + 1), edge(band + 2)];
    const from = Math.max(1, Math.min(Math.floor(left) + 1, Math.round(centre)));
    const to = Math.max(from, Math.min(Math.ceil(right) - 1, size / 2 - 1));
    const weights = Float32Array.from({ length: to - from + 1 }, (_, k) => {
      const bin = from + k;
      return Math.max(0.05, bin < centre ? (bin - left) / (centre - left) : (right - bin) / (right - centre));
    });
    return { from, weights };
  });
}

function twiddles(size) {
  const cosine = new Float32Array(size / 2);
  const sine = new Float32Array(size / 2);
  for (let i = 0; i < size / 2; i++) {
    cosine[i] = Math.cos((2 * Math.PI * i) / size);
    sine[i] = Math.sin((2 * Math.PI * i) / size);
  }
  return { cosine, sine };
}

// In place, radix 2.
function transform(real, imaginary, { cosine, sine }) {
  const size = real.length;
  for (let i = 1, j = 0; i < size; i++) {
    let bit = size >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) [real[i], real[j], imaginary[i], imaginary[j]] = [real[j], real[i], imaginary[j], imaginary[i]];
  }
  for (let length = 2; length <= size; length <<= 1) {
    const step = size / length;
    for (let start = 0; start < size; start += length) {
      for (let k = 0; k < length / 2; k++) {
        const [a, b, t] = [start + k, start + k + length / 2, k * step];
        const re = real[b] * cosine[t] + imaginary[b] * sine[t];
        const im = imaginary[b] * cosine[t] - real[b] * sine[t];
        real[b] = real[a] - re;
        imaginary[b] = imaginary[a] - im;
        real[a] += re;
        imaginary[a] += im;
      }
    }
  }
}
