"""`monoscribe mic` in a terminal, with a recording played into its microphone."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

import client
import monoscribe
from client.audio import Samples
from client.mic_command import keep_untold
from client.session import Session
from model import Recognizer, StreamOptions
from tests.client.conftest import Wire
from tests.client.fake_sounddevice import HOST_ERROR, FakeSounddevice, PortAudioError
from tests.client.sound_card import RATE, SoundCard, needs_sound_card, sound_card, wait_until
from tests.conftest import BEST
from tests.server.conftest import RunningServer, noise

ROOT = Path(__file__).parents[2]
CTRL_C = b"\x03"


class Terminal:
    """A command in a pseudo-terminal."""

    def __init__(self, environment: dict[str, str], *arguments: object, folder: Path = ROOT) -> None:
        self._master, slave = pty.openpty()
        command = [sys.executable, "-m", "monoscribe", *map(str, arguments)]
        environment = environment | {"TERM": "xterm", "COLUMNS": "200", "LINES": "30", "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=_take_terminal,
        )  # fmt: skip
        os.close(slave)
        self._output = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def output(self) -> str:
        """All that was ever drawn, without the strokes that move the cursor."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._output.decode(errors="replace"))

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def wait(self) -> int:
        code = self.process.wait(60)
        self._reader.join(10)
        os.close(self._master)
        return code

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.wait()

    def _read(self) -> None:
        try:
            while data := os.read(self._master, 4096):
                self._output += data
        except OSError:  # how a pseudo-terminal says that everyone has left
            return


def _take_terminal() -> None:
    """Makes the terminal the process's own, so that Ctrl-C reaches it."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SoundCard]:
    with sound_card(tmp_path_factory.mktemp("card")) as card:
        yield card


def recording(seconds: float, seed: int) -> Samples:
    """Never zero, so that it can be found between silence; in exact 16-bit values."""
    samples = np.round(noise(seconds * RATE / 16_000, seed) * 32768)
    return np.where(samples == 0, 1, samples).astype(np.float32) / np.float32(32768)


def heard(path: Path) -> Samples:
    samples, rate = soundfile.read(path, dtype="float32")
    assert rate == RATE
    return np.asarray(samples, dtype=np.float32)


def recorded_seconds(path: Path) -> float:
    return path.stat().st_size / 2 / RATE if path.exists() else 0.0


def lines_of(recognizer: Recognizer, samples: Samples, options: StreamOptions = BEST) -> list[str]:
    return [segment.text for segment in recognizer.transcribe(samples, replace(options, sample_rate=RATE)).segments]


@needs_sound_card
def test_the_text_is_that_of_the_recording(card: SoundCard, server: RunningServer, recognizer: Recognizer, tmp_path: Path) -> None:
    out, saved, played = tmp_path / "out.txt", tmp_path / "out.wav", recording(4, seed=21)
    terminal = Terminal(card.environment, "mic", "--server", server.url, "--save", saved, "--output", out, "--beam", 1)
    try:
        wait_until(lambda: recorded_seconds(saved) > 0.2, "it does not record")
        card.play(played)
        end = recorded_seconds(saved)
        wait_until(lambda: recorded_seconds(saved) > end + 0.3, "it stopped recording")
        terminal.press(CTRL_C)
        assert terminal.wait() == 0, terminal.output
    finally:
        terminal.end()
    samples = heard(saved)
    sounds = np.flatnonzero(samples)
    np.testing.assert_array_equal(samples[sounds[0] : sounds[-1] + 1], played)
    lines = lines_of(recognizer, samples, StreamOptions(beam=1))
    assert lines
    assert out.read_text().splitlines() == lines
    shown = terminal.output
    assert all(f"{line}\r\n" in shown for line in lines), "each segment settles on a line of its own"
    longest = max(lines, key=len)
    assert any(longest[:length] + "\r\n" in shown for length in range(1, len(longest))), "characters appear as they are decided"
    assert re.search(r"00:0\d +▮+▯* +lag \d+\.\d s +listening", shown)


@needs_sound_card
def test_a_broken_connection_loses_nothing(card: SoundCard, wire: Wire, recognizer: Recognizer, tmp_path: Path) -> None:
    saved = tmp_path / "out.wav"
    terminal = Terminal(
        card.environment, "mic", "--server", wire.url, "--save", saved, "--output", tmp_path / "out.srt", "--format", "srt"
    )
    try:
        wait_until(lambda: recorded_seconds(saved) > 0.2, "it does not record")
        player = threading.Thread(target=card.play, args=(recording(3, seed=22),))
        player.start()
        begun = recorded_seconds(saved)
        wait_until(lambda: recorded_seconds(saved) > begun + 1, "it stopped recording")
        target, wire.target = wire.target, None
        wire.cut()
        wait_until(lambda: "connection lost" in terminal.output, "it did not notice")
        wire.target = target
        player.join()
        wait_until(lambda: "(connected again; nothing was lost)" in terminal.output, "it did not come back")
        terminal.press(CTRL_C)
        assert terminal.wait() == 0, terminal.output
    finally:
        terminal.end()
    subtitles = (tmp_path / "out.srt").read_text()
    spoken = [line for line in subtitles.splitlines() if line and "-->" not in line and not line.isdigit()]
    assert " ".join(spoken) == " ".join(lines_of(recognizer, heard(saved)))


@needs_sound_card
def test_who_does_not_wait_for_the_server_keeps_the_recording(
    card: SoundCard, wire: Wire, recognizer: Recognizer, tmp_path: Path
) -> None:
    saved = tmp_path / "out.wav"
    terminal = Terminal(card.environment, "mic", "--server", wire.url, "--save", saved, folder=tmp_path)
    try:
        wait_until(lambda: recorded_seconds(saved) > 0.2, "it does not record")
        wire.target = None
        wire.cut()
        wait_until(lambda: "connection lost, trying again; listening" in terminal.output, "it did not notice")
        card.play(recording(1, seed=29))
        terminal.press(CTRL_C)
        wait_until(
            lambda: "trying again; finishing; Ctrl-C again ends at once" in terminal.output, "it does not say what it waits for"
        )
        terminal.press(CTRL_C)
        assert terminal.wait() == 130
    finally:
        terminal.end()
    (kept,) = tmp_path.glob("monoscribe-*.wav")
    assert f"were not transcribed; they are in {kept.name}" in terminal.output
    np.testing.assert_array_equal(heard(kept), heard(saved))


@needs_sound_card
def test_a_microphone_that_vanishes_is_one_sentence(server: RunningServer, recognizer: Recognizer, tmp_path: Path) -> None:
    saved = tmp_path / "out.wav"
    folder = tmp_path / "card"
    folder.mkdir()
    with sound_card(folder) as card:
        terminal = Terminal(card.environment, "mic", "--server", server.url, "--save", saved, "--output", tmp_path / "out.txt")
        try:
            wait_until(lambda: recorded_seconds(saved) > 0.2, "it does not record")
            card.play(recording(1.5, seed=23))
            card.unplug()
            assert terminal.wait() == 1
        finally:
            terminal.end()
    assert "default delivers nothing any more: was it unplugged?\r\n" in terminal.output
    assert "Traceback" not in terminal.output
    assert (tmp_path / "out.txt").read_text().splitlines() == lines_of(recognizer, heard(saved)), "the rest is still said"


@needs_sound_card
def test_devices(card: SoundCard, server: RunningServer, tmp_path: Path) -> None:
    listed = run_mic(card.environment, "--list-devices")
    assert listed.returncode == 0
    assert re.search(r"^\* +\d+  default  \(\d+ channels, 44100 Hz\)$", listed.stdout, re.MULTILINE)
    unknown = run_mic(card.environment, "--device", "banjo")
    assert unknown.returncode == 1
    assert re.fullmatch(r"monoscribe mic: --device=banjo: there is no such microphone; expected one of .*\.\n", unknown.stderr)
    nobody = run_mic(card.environment, "--server", "127.0.0.1:1")
    assert nobody.returncode == 3
    assert nobody.stderr.startswith("monoscribe mic: Nothing listens at ws://127.0.0.1:1;")
    unwritable = run_mic(card.environment, "--server", server.url, "--save", tmp_path / "x.banjo")
    assert unwritable.returncode == 1
    assert "expected a name that ends in .wav" in unwritable.stderr


@needs_sound_card
def test_no_microphone(tmp_path: Path) -> None:
    """Nor a sound server: what PortAudio finds by itself in a container."""
    alone = run_mic(os.environ | {"ALSA_CONFIG_PATH": "/usr/share/alsa/alsa.conf", "PULSE_SERVER": "unix:/nowhere"})
    assert alone.returncode == 1
    assert alone.stderr.startswith("monoscribe mic: There is no microphone here")
    assert alone.stderr.count("\n") == 1


def test_no_portaudio(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    monkeypatch.setattr("sys.meta_path", [NoPortAudio(), *sys.meta_path])
    assert monoscribe.main(["mic"]) == 1
    assert "PortAudio is missing (PortAudio library not found); install it: `apt install libportaudio2`" in capsys.readouterr().err


class NoPortAudio:
    """What sounddevice does where the library is missing."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "sounddevice":
            raise OSError("PortAudio library not found")


@pytest.mark.parametrize(
    ("own", "offered", "channels", "opened"),
    [
        (44_100, (44_100,), 1, (44_100, 1)),
        (48_000, (48_000,), 2, (48_000, 2)),  # has no single channel
        (96_000, (96_000,), 1, (96_000, 1)),  # beyond what the server takes
        (11_025, (11_025,), 1, (11_025, 1)),
        (6_000, (6_000,), 1, (6_000, 1)),
        (44_100, (16_000,), 1, (16_000, 1)),  # refuses the rate that it calls its own
        (192_000, (192_000, 48_000), 1, (48_000, 1)),
    ],
)
def test_any_rate(
    server: RunningServer, recognizer: Recognizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    own: int, offered: tuple[int, ...], channels: int, opened: tuple[int, int],
) -> None:  # fmt: skip
    card = FakeSounddevice(own, channels).install(monkeypatch)
    card.rates, card.least_channels = offered, channels
    rate = opened[0]
    times = np.arange(3 * rate) / rate
    card.played = np.interp(times, np.arange(48_000) / 16_000, noise(3, seed=25)).astype(np.float32)
    out, saved = tmp_path / "out.txt", tmp_path / "out.wav"
    assert monoscribe.main(["mic", "--server", server.url, "--output", str(out), "--save", str(saved)]) == 1
    assert card.opened == [opened]
    samples, sent = soundfile.read(saved, dtype="float32")
    assert 8_000 <= sent <= 48_000
    assert len(samples) / sent == pytest.approx(3, abs=0.01)
    lines = [segment.text for segment in recognizer.transcribe(samples, replace(BEST, sample_rate=sent)).segments]
    assert out.read_text().splitlines() == lines != []


HOLDS = "another program holds it; end that one, or choose another microphone with --device."
ALLOW = "this program may not use it; allow it in the system's privacy settings, or on Linux add yourself to the group"


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("Permission denied", ALLOW),
        ("Operation not permitted", ALLOW),
        ("Device or resource busy", HOLDS),
        ("Device unavailable", HOLDS),
        ("Unanticipated host error", "another program may hold it, or this one may not use it; see the system's"),
    ],
)
def test_a_microphone_that_cannot_be_opened(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reason: str, advice: str
) -> None:
    card = FakeSounddevice().install(monkeypatch)
    card.error = PortAudioError(f"Error opening InputStream: {reason}", HOST_ERROR)
    assert monoscribe.main(["mic"]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"monoscribe mic: Fake cannot be opened ({reason} {HOST_ERROR}): {advice}")
    assert told.endswith(".\n")
    assert told.count("\n") == 1


def test_a_microphone_with_no_usual_rate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    FakeSounddevice().install(monkeypatch).rates = (12_345,)
    assert monoscribe.main(["mic"]) == 1
    assert capsys.readouterr().err.endswith(": it offers no rate that is usual; choose another with --device.\n")


@pytest.mark.parametrize("dies_silently", [True, False])
@pytest.mark.parametrize(("seconds", "told"), [(2, "nothing any more: was it unplugged?"), (0, "nothing at all; choose another")])
def test_a_microphone_that_is_lost(
    server: RunningServer, recognizer: Recognizer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    dies_silently: bool, seconds: int, told: str,
) -> None:  # fmt: skip
    monkeypatch.setattr("client.microphone.LOST_SECONDS", 0.5)
    monkeypatch.setattr("client.microphone.FIRST_SECONDS", 0.5)
    card = FakeSounddevice(16_000).install(monkeypatch)
    card.dies_silently = dies_silently
    card.played = noise(2, seed=26)[: seconds * 16_000]
    assert monoscribe.main(["mic", "--server", server.url]) == 1
    shown = capsys.readouterr()
    assert f"monoscribe mic: Fake delivers {told}" in shown.err
    assert shown.out.splitlines() == [segment.text for segment in recognizer.transcribe(card.played, BEST).segments]


def test_a_sound_system_that_does_not_start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Broken:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == "sounddevice":
                raise PortAudioError("Error initializing PortAudio: Internal error")

    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    monkeypatch.setattr("sys.meta_path", [Broken(), *sys.meta_path])
    assert monoscribe.main(["mic"]) == 1
    expected = "monoscribe mic: The sound system does not start (Error initializing PortAudio: Internal error).\n"
    assert capsys.readouterr().err == expected


def run_mic(environment: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "monoscribe", "mic", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)


def test_what_no_server_came_back_for_is_kept(
    wire: Wire, recognizer: Recognizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    samples = noise(2, seed=24)

    async def lose() -> str:
        async with client.connect(wire.url, reconnect_seconds=0.2) as session:
            wire.target = None
            wire.cut()
            await session.send(samples)
            with pytest.raises(client.ConnectionFailedError):
                async for _ in session:
                    pass
            return keep_untold(session)

    sentence = asyncio.run(lose())
    (kept,) = tmp_path.iterdir()
    assert sentence == f"The last 2 s were not transcribed; they are in {kept.name}, for `monoscribe file {kept.name}`."
    np.testing.assert_array_equal(soundfile.read(kept, dtype="float32")[0], samples)


def test_what_cannot_be_kept_here_is_kept_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir("/proc/self")  # where not even root can write
    session = Session("127.0.0.1:1", "", client.Options(), buffer_seconds=1, reconnect_seconds=1)
    session._conversation.append(bytes(32_000))
    sentence = keep_untold(session)
    (kept,) = tmp_path.iterdir()
    assert sentence.startswith(f"The last 1 s were not transcribed; they are in {kept}")
    assert soundfile.info(kept).frames == 16_000
    monkeypatch.setattr(tempfile, "tempdir", "/proc/self")
    assert keep_untold(session).startswith("The last 1 s were not transcribed, and could not be kept")


def test_a_reader_that_has_seen_enough_ends_it(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in `monoscribe mic | head -1`."""
    FakeSounddevice(16_000).install(monkeypatch).played = noise(3, seed=28)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        assert monoscribe.main(["mic", "--server", server.url]) == 1
    assert capsys.readouterr().err == ""


def test_a_recording_for_which_there_is_no_room(
    server: RunningServer,
    recognizer: Recognizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What came before is still said, and the file is whole as far as it goes."""
    monkeypatch.chdir(tmp_path)
    FakeSounddevice(16_000).install(monkeypatch).played = noise(6, seed=27)
    _, most = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, most))
    try:
        assert monoscribe.main(["mic", "--server", server.url, "--save", "out.wav"]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    told = capsys.readouterr()
    assert "monoscribe mic: --save=out.wav: breaks off (System error.); is there no room left?\n" in told.err
    kept, _ = soundfile.read("out.wav", dtype="float32")
    assert 2.9 < len(kept) / 16_000 < 3.2
    np.testing.assert_array_equal(kept, noise(6, seed=27)[: len(kept)])
    assert recognizer.transcribe(kept, BEST).text.startswith(" ".join(told.out.splitlines())[:20])
    assert told.out.strip()


def test_a_microphone_that_delivers_only_silence_is_pointed_out(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As macOS does with a program that may not use it."""
    FakeSounddevice(16_000).install(monkeypatch).played = np.zeros(5 * 16_000, np.float32)
    assert monoscribe.main(["mic", "--server", server.url]) == 1
    assert "Only silence comes from Fake: is it muted, or may this program not use it?" in capsys.readouterr().err
