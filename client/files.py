"""Audio files, pipes and whatever ffmpeg reads, as mono samples in pieces."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np
import soundfile

from client.audio import Resampler, Samples, to_mono
from client.events import AudioError
from client.wav_pipe import WavHeader, read_wav_header

CHUNK_SECONDS = 0.5
FFMPEG_RATE = 16_000  # what the recogniser works at: ffmpeg resamples well
FULL_SCALE = 32_768
STDIN = "-"


@dataclass(frozen=True)
class AudioSource:
    """Mono samples. `seconds` is None where that cannot be known beforehand."""

    rate: int
    seconds: float | None
    chunks: Callable[[], Iterator[Samples]]


@contextmanager
def read_audio(path: str | PathLike[str]) -> Iterator[AudioSource]:
    """Raises AudioError, with a sentence, for what cannot be read; also while the chunks are read."""
    if str(path) == STDIN:
        with _read_pipe(_standard_input()) as source:
            yield source
        return
    file = Path(path)
    if not file.exists():
        raise AudioError(f"{file}: there is no such file.")
    if file.is_dir():
        raise AudioError(f"{file}: is a folder; expected an audio file.")
    if file.is_file() and file.stat().st_size == 0:
        raise AudioError(f"{file}: is empty; expected an audio file.")
    with _read_file(file, str(file)) as source:
        yield source


@contextmanager
def _read_file(path: Path, name: str) -> Iterator[AudioSource]:
    try:
        sound = soundfile.SoundFile(path)
    except (soundfile.LibsndfileError, OSError, TypeError) as error:  # TypeError: .raw, of which it wants to know more
        reason = str(getattr(error, "error_string", "") or error).strip().rstrip(".")
        with _read_through_ffmpeg(path, name, reason) as source:
            yield source
        return
    with sound:
        resample = Resampler(sound.samplerate)

        def chunks() -> Iterator[Samples]:
            try:
                for block in sound.blocks(int(CHUNK_SECONDS * sound.samplerate), dtype="float32"):
                    yield resample(to_mono(block))
            except soundfile.LibsndfileError as error:
                raise AudioError(f"{name}: breaks off: {error.error_string.strip()}") from error

        yield AudioSource(resample.rate, sound.frames / sound.samplerate, chunks)


@contextmanager
def _read_through_ffmpeg(path: Path, name: str, reason: str) -> Iterator[AudioSource]:
    """For m4a, webm, video and whatever else there is."""
    ffmpeg = shutil.which("ffmpeg")
    if ffmpeg is None:
        raise AudioError(f"{name}: cannot be read ({reason}); install ffmpeg, or convert it to wav, flac, ogg or mp3.")
    address = f"file:{path}"  # of "10:30 talk.m4a" it would take the 10 for a protocol
    command = [ffmpeg, "-nostdin", "-v", "error", "-i", address, "-vn", "-f", "s16le", "-ac", "1", "-ar", str(FFMPEG_RATE), "-"]
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints)
        assert process.stdout is not None
        stdout = process.stdout

        def chunks() -> Iterator[Samples]:
            yield from _samples(stdout, WavHeader(FFMPEG_RATE, 1, "<i2"))
            if process.wait() != 0:
                complaints.seek(0)
                said = complaints.read().decode(errors="replace").strip().splitlines()
                why = said[-1].removeprefix(f"{address}: ") if said else f"ffmpeg ends with {process.returncode}"
                raise AudioError(f"{name}: cannot be read: {why.rstrip('.')}.")

        try:
            yield AudioSource(FFMPEG_RATE, None, chunks)
        finally:
            process.kill()
            process.wait()
            stdout.close()


@contextmanager
def _read_pipe(stdin: IO[bytes]) -> Iterator[AudioSource]:
    """A WAV is heard while it comes. Everything else has to be there as a whole before it can be read."""
    header, head = read_wav_header(stdin)
    if header is not None:
        resample = Resampler(header.rate)
        yield AudioSource(resample.rate, header.seconds, lambda: (resample(chunk) for chunk in _samples(stdin, header)))
        return
    if not head:
        raise AudioError(
            "-: nothing came on standard input; expected audio, such as `ffmpeg -i FILE -f wav - | monoscribe file -`."
        )
    with tempfile.NamedTemporaryFile(prefix="monoscribe-") as file:
        file.write(head)
        shutil.copyfileobj(stdin, file)
        file.flush()
        with _read_file(Path(file.name), STDIN) as source:
            yield source


def _standard_input() -> IO[bytes]:
    """Without its buffer: a read that waits would lock that, and Python could not end."""
    raw: IO[bytes] = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
    return raw


def _samples(pipe: IO[bytes], header: WavHeader) -> Iterator[Samples]:
    """Raw samples in pieces, as soon as there are some."""
    read: Any = getattr(pipe, "read1", pipe.read)  # read1 does not wait for more than there is
    scale = np.float32(1 / FULL_SCALE if header.dtype == "<i2" else 1.0)
    frame = header.frame_bytes
    most = int(CHUNK_SECONDS * header.rate) * frame
    left = header.length if header.length is not None else sys.maxsize
    while data := read(min(most, left)):
        while len(data) % frame and (more := read(frame - len(data) % frame)):
            data += more
        left -= len(data)
        whole = len(data) - len(data) % frame
        samples = np.frombuffer(data[:whole], header.dtype).astype(np.float32) * scale
        yield to_mono(samples.reshape(-1, header.channels))
