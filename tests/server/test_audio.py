"""Decoders: what comes out depends on the bytes, never on how they were cut."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.audio import RawDecoder, Samples
from server.containers import ContainerDecoder, UndecodableError, decode_file
from server.messages import Encoding, Error, ProtocolError
from tests.server.conftest import noise
from tests.server.encode import encode
from tests.server.talk import chunks

CONTAINERS: list[Encoding] = ["webm", "ogg", "flac", "mp3", "wav"]


class Ear:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.room = threading.Event()
        self.room.set()
        self.heard: list[Samples] = []
        self.flushes: list[tuple[str, int]] = []
        self.error: Error | None = None
        self.over = threading.Event()

    def hear(self, samples: Samples) -> None:
        self.heard.append(samples)

    def flush(self, name: str) -> None:
        self.flushes.append((name, sum(map(len, self.heard))))

    def finish(self) -> None:
        self.over.set()

    def fail(self, error: Error) -> None:
        self.error = error
        self.over.set()

    @property
    def samples(self) -> Samples:
        return np.concatenate(self.heard)


def decoded(data: bytes, encoding: Encoding, seed: int, largest: int = 5000) -> Ear:
    ear = Ear()
    decoder = ContainerDecoder(encoding, ear)
    for chunk in chunks(data, seed, largest=largest):
        decoder.decode(chunk)
    decoder.finish()
    assert ear.over.wait(60)
    return ear


@pytest.mark.parametrize("encoding", CONTAINERS)
def test_containers_are_decoded_whatever_the_chunking(encoding: Encoding) -> None:
    data = encode(noise(3, seed=1), encoding)
    whole = np.concatenate(list(decode_file(io.BytesIO(data), encoding)))
    assert abs(len(whole) / 16_000 - 3) < 0.1
    first, *others = [decoded(data, encoding, seed, largest) for seed, largest in ((1, 3), (2, 500), (3, 50_000))]
    for other in others:
        assert np.array_equal(other.samples, first.samples)
    if encoding != "mp3":  # of which only a file that can be searched tells its padding
        assert np.array_equal(first.samples, whole)
    automatic = decoded(data, "auto", 4)
    assert np.array_equal(automatic.samples, first.samples)


@pytest.mark.parametrize("encoding", ["webm", "ogg"])
def test_live_containers_come_out_while_they_arrive(encoding: Encoding) -> None:
    data = encode(noise(10, seed=1), encoding)
    ear = Ear()
    decoder = ContainerDecoder(encoding, ear)
    decoder.decode(data[: len(data) // 2])
    decoder.flush("half")
    wait_until(lambda: bool(ear.flushes))
    assert ear.flushes[0][1] > 16_000 * 3  # most of the five seconds, before the rest has come
    decoder.decode(data[len(data) // 2 :])
    decoder.finish()
    assert ear.over.wait(60)
    assert abs(len(ear.samples) / 16_000 - 10) < 0.1


def wait_until(condition: object, seconds: float = 60) -> None:
    assert callable(condition)
    pause = threading.Event()
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("waited in vain")


@pytest.mark.parametrize("encoding", [*CONTAINERS, "auto"])
@pytest.mark.parametrize("data", [b"x", bytes(range(256)) * 40, np.random.default_rng(0).bytes(20_000)])
def test_garbage_gets_a_clear_error(encoding: Encoding, data: bytes) -> None:
    ear = decoded(data, encoding, seed=1)
    if encoding == "mp3" and ear.error is None:
        return  # any noise may hold something that looks like an mp3 frame
    assert ear.error is not None
    assert ear.error.code == "bad_audio"
    assert ear.error.message.startswith(f"encoding={encoding}: ")
    assert "expected audio that is" in ear.error.message


@pytest.mark.parametrize("encoding", [*CONTAINERS, "auto"])
def test_who_says_nothing_makes_no_mistake(encoding: Encoding) -> None:
    ear = Ear()
    decoder = ContainerDecoder(encoding, ear)
    decoder.flush("a")
    decoder.finish()
    assert ear.over.wait(60)
    assert (ear.error, ear.heard, ear.flushes) == (None, [], [("a", 0)])


def test_a_decoder_waits_for_room_and_can_be_abandoned() -> None:
    ear = Ear()
    ear.room.clear()
    decoder = ContainerDecoder("flac", ear)
    decoder.decode(encode(noise(2, seed=1), "flac"))
    decoder.finish()
    assert not ear.over.wait(0.2)
    assert not ear.heard
    decoder.abandon()
    decoder._thread.join(10)
    assert not decoder._thread.is_alive()


def test_damage_in_the_middle_costs_only_what_is_damaged() -> None:
    data = bytearray(encode(noise(4, seed=1), "ogg"))
    data[len(data) // 2 : len(data) // 2 + 200] = bytes(200)
    ear = decoded(bytes(data), "ogg", seed=1)
    assert ear.error is None
    assert len(ear.samples) > 16_000


def test_a_recording_joined_of_two_with_different_rates() -> None:
    first, second = noise(1.5, seed=1), noise(1, seed=2)
    data = encode(first, "mp3") + encode(np.repeat(second, 2), "mp3", rate=32_000)
    heard = np.concatenate(list(decode_file(io.BytesIO(data), "mp3")))
    assert 2.5 <= len(heard) / 16_000 < 2.7
    assert decoded(data, "auto", seed=1).samples.tolist() == heard.tolist()


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        "ffconcat version 1.0\nfile speech.wav\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nspeech.wav\n#EXT-X-ENDLIST\n",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 50000 RTP/AVP 0\n",
    ],
    ids=["concat", "hls", "sdp"],
)
def test_what_points_elsewhere_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, live: bool) -> None:
    monkeypatch.chdir(tmp_path)
    Path("speech.wav").write_bytes(encode(noise(1, seed=1), "wav"))
    with pytest.raises(UndecodableError):
        list(decode_file(io.BytesIO(text.encode()), "auto", live=live))


def test_a_file_without_audio() -> None:
    with pytest.raises(UndecodableError, match="cannot be decoded"):
        list(decode_file(io.BytesIO(b"hello"), "auto"))


@given(st.integers(0, 2**32), st.sampled_from(["pcm_s16le", "pcm_f32le", "mulaw", "alaw"]), st.integers(1, 8))
def test_raw_audio_whatever_the_chunking(seed: int, encoding: Encoding, channels: int) -> None:
    data = b"\x01\x02\x03\x04" + np.random.default_rng(seed).bytes(1000)
    whole = RawDecoder(encoding, channels).decode(data)
    decoder = RawDecoder(encoding, channels)
    pieces = [decoder.decode(chunk) for chunk in chunks(data, seed, largest=40)]
    assert np.array_equal(np.concatenate(pieces), whole, equal_nan=True)


def test_channels_are_mixed() -> None:
    left, right = np.array([0.5, 0.25], "<f4"), np.array([-0.5, 0.75], "<f4")
    samples = RawDecoder("pcm_f32le", 2).decode(np.stack([left, right], axis=1).tobytes())
    assert samples.tolist() == [0.0, 0.5]


@pytest.mark.parametrize(("code", "value"), [("mulaw", 0x80), ("alaw", 0xAA)])
def test_companded_full_scale(code: Encoding, value: int) -> None:
    loudest = RawDecoder(code, 1).decode(bytes([value]))[0]
    assert 0.95 < loudest < 1
    assert RawDecoder(code, 1).decode(bytes([value ^ 0x80]))[0] == -loudest


@pytest.mark.parametrize("encoding", ["webm", "ogg", "flac", "wav"])
def test_a_container_sent_as_raw_samples_is_told_so(encoding: Encoding) -> None:
    data = encode(noise(1, seed=1), encoding)
    decoder = RawDecoder("pcm_s16le", 1)
    decoder.decode(data[:1])
    with pytest.raises(
        ProtocolError, match=f"encoding=pcm_s16le: the audio is {encoding}; expected raw samples, or encoding={encoding}"
    ):
        decoder.decode(data[1:100])
