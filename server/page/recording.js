// A file, as samples that the recogniser likes.

export const RATE = 16000;
const PIECE_SECONDS = 0.25;

export class FileError extends Error {
  name = "FileError";
}

// Mono samples at RATE, decoded by the browser.
export async function decode(file) {
  let decoded;
  try {
    decoded = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(await file.arrayBuffer());
  } catch {
    throw new FileError(`${file.name} cannot be read as audio. This browser reads wav, mp3, ogg, flac and m4a.`);
  }
  if (!decoded.length) throw new FileError(`${file.name} holds no audio.`);
  const mixed = decoded.getChannelData(0).slice();
  for (let channel = 1; channel < decoded.numberOfChannels; channel++) {
    const samples = decoded.getChannelData(channel);
    for (let i = 0; i < mixed.length; i++) mixed[i] += samples[i];
  }
  if (decoded.numberOfChannels > 1) for (let i = 0; i < mixed.length; i++) mixed[i] /= decoded.numberOfChannels;
  return mixed;
}

export function* pieces(samples) {
  const step = PIECE_SECONDS * RATE;
  for (let start = 0; start < samples.length; start += step) yield samples.subarray(start, start + step);
}
