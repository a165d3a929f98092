// The microphone, in pieces of samples. Everything that can go wrong becomes a sentence.

const WANTED_RATE = 16000; // what the recogniser works at: a third of the bytes of 48 kHz

export class MicrophoneError extends Error {
  name = "MicrophoneError";
}

export async function listMicrophones() {
  const devices = (await navigator.mediaDevices?.enumerateDevices()) ?? [];
  return devices.filter((device) => device.kind === "audioinput" && device.deviceId);
}

export class Microphone {
  #context;
  #stream;
  #node;
  #ended;

  // `heard(samples, rate)` is called with each piece, `lost()` if the microphone vanishes.
  static async open(deviceId, heard, lost) {
    if (!navigator.mediaDevices) {
      throw new MicrophoneError("Browsers give the microphone only to secure pages: open this one by https, or on localhost.");
    }
    const microphone = new Microphone();
    try {
      microphone.#stream = await navigator.mediaDevices.getUserMedia({
        audio: {
          deviceId: deviceId ? { exact: deviceId } : undefined,
          channelCount: 1,
          echoCancellation: false, // made for calls: they blur what a recogniser listens for
          noiseSuppression: false,
          autoGainControl: true,
        },
      });
      await microphone.#start(heard);
    } catch (error) {
      microphone.#release();
      throw explain(error);
    }
    microphone.#stream.getAudioTracks()[0].addEventListener("ended", lost);
    return microphone;
  }

  get rate() {
    return this.#context.sampleRate;
  }

  get deviceId() {
    return this.#stream.getAudioTracks()[0].getSettings().deviceId;
  }

  // Resolves when the last piece has been heard.
  async stop() {
    this.#node.port.postMessage("stop");
    await Promise.race([this.#ended, new Promise((resolve) => setTimeout(resolve, 500))]);
    this.#release();
  }

  async #start(heard) {
    let source;
    try {
      this.#context = new AudioContext({ sampleRate: WANTED_RATE, latencyHint: "interactive" });
      source = this.#context.createMediaStreamSource(this.#stream);
    } catch {
      // a browser that does not resample microphones
      await this.#context?.close();
      this.#context = new AudioContext({ latencyHint: "interactive" });
      source = this.#context.createMediaStreamSource(this.#stream);
    }
    await this.#context.audioWorklet.addModule(new URL("./capture-worklet.js", import.meta.url));
    this.#node = new AudioWorkletNode(this.#context, "capture", { numberOfOutputs: 0 });
    this.#ended = new Promise((resolve) => {
      this.#node.port.onmessage = ({ data }) => (data === null ? resolve() : heard(data, this.rate));
    });
    source.connect(this.#node);
    await this.#context.resume();
  }

  #release() {
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    if (this.#context && this.#context.state !== "closed") this.#context.close();
  }
}

function explain(error) {
  const sentences = {
    NotAllowedError: "The microphone is not allowed here. Allow it in the browser's address bar, then press the button again.",
    NotFoundError: "No microphone was found. Plug one in, or open an audio file instead.",
    OverconstrainedError: "That microphone is no longer there. Choose another one.",
    NotReadableError: "The microphone cannot be opened: another program may hold it.",
  };
  if (error.name === "NotAllowedError" && /system/i.test(error.message)) {
    return new MicrophoneError("The system does not let this browser use the microphone: allow it in the system's privacy settings.");
  }
  return new MicrophoneError(sentences[error.name] ?? `The microphone does not work: ${error.message}`, { cause: error });
}
