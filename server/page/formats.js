// A transcript as text, srt or vtt: the same as `monoscribe file` and the server write.

const LONGEST_CUE = 84; // characters: two lines of a subtitle
const LONGEST_CUE_SECONDS = 7;

export function asText(segments) {
  return segments.map((segment) => segment.text + "\n").join("");
}

export function asSrt(segments) {
  return cues(segments)
    .map(([start, end, text], index) => `${index + 1}\n${clock(start, ",")} --> ${clock(end, ",")}\n${text}\n`)
    .join("\n");
}

export function asVtt(segments) {
  return "WEBVTT\n" + cues(segments).map(([start, end, text]) => `\n${clock(start, ".")} --> ${clock(end, ".")}\n${text}\n`).join("");
}

export function clock(seconds, mark) {
  const milliseconds = Math.round(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  const minutes = Math.floor(milliseconds / 60000);
  const rest = milliseconds % 60000;
  return `${two(Math.floor(minutes / 60))}:${two(minutes % 60)}:${two(Math.floor(rest / 1000))}${mark}${String(rest % 1000).padStart(3, "0")}`;
}

// For people: 1:05, or 1:02:05.
export function shortClock(seconds) {
  const whole = Math.floor(seconds);
  const tail = `${String(whole % 60).padStart(2, "0")}`;
  const minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes}:${tail}` : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${tail}`;
}

// Start, end and text of each: a segment, or as many of its words as can be read at a time.
function cues(segments) {
  const found = [];
  for (const segment of segments) {
    let words = [];
    const add = () => found.push([words[0].start, words.at(-1).end, words.map((word) => word.text).join(" ")]);
    for (const word of segment.words.length ? segment.words : [segment]) {
      const characters = words.reduce((sum, known) => sum + known.text.length + 1, 0) + word.text.length;
      if (words.length && (characters > LONGEST_CUE || word.end - words[0].start > LONGEST_CUE_SECONDS)) {
        add();
        words = [];
      }
      words.push(word);
    }
    add();
  }
  return found;
}
