"""A sound card made of PulseAudio: what is played into it comes out of its microphone, sample for sample."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from client.audio import Samples

RATE = 44_100  # what PortAudio takes for the default rate of such a card
PACKAGES = "pulseaudio, pulseaudio-utils, libasound2-plugins and libportaudio2"

CONFIGURATION = """
pcm.!default { type pulse }
ctl.!default { type pulse }
"""


def wait_until(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.05)


class SoundCard:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "native"
        (folder / "asound.conf").write_text(CONFIGURATION)
        self.environment = os.environ | {
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(folder),
            "PULSE_RUNTIME_PATH": str(folder),
            "PULSE_SERVER": f"unix:{self.socket}",
            "ALSA_CONFIG_PATH": f"/usr/share/alsa/alsa.conf:{folder / 'asound.conf'}",
            "DBUS_SESSION_BUS_ADDRESS": "disabled:",
        }
        self._processes: list[subprocess.Popen[bytes]] = []

    def plug_in(self) -> None:
        protocol = f"module-native-protocol-unix auth-anonymous=1 socket={self.socket}"
        sink = f"module-null-sink sink_name=card rate={RATE} channels=1 format=s16le"
        self._start(
            "pulseaudio", "-n", "--exit-idle-time=-1", "--daemonize=no", "--log-level=error", "--load", protocol, "--load", sink
        )
        wait_until(self._is_there, "PulseAudio does not start")
        self._start(*self._play("/dev/zero"))  # a card without a player delivers nothing, not even silence

    def play(self, samples: Samples) -> None:
        """Returns when it has been heard. Begins with silence: a player that joins in may lose its first few milliseconds."""
        file = self.folder / "played.raw"
        np.round(np.concatenate([np.zeros(RATE // 2), samples]) * 32768).astype("<i2").tofile(file)
        subprocess.run(self._play(str(file)), env=self.environment, check=True, timeout=60)

    def unplug(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._processes.clear()

    def _play(self, file: str) -> list[str]:
        return ["pacat", "--playback", f"--rate={RATE}", "--channels=1", "--format=s16le", file]

    def _start(self, *command: str) -> None:
        self._processes.append(subprocess.Popen(command, env=self.environment, stderr=subprocess.DEVNULL))

    def _is_there(self) -> bool:
        if not self.socket.exists():
            return False
        return subprocess.run(["pactl", "info"], env=self.environment, capture_output=True, timeout=30).returncode == 0


def has_sound_card() -> bool:
    plugin = any(Path("/usr/lib").glob("*/alsa-lib/libasound_module_pcm_pulse.so"))
    try:
        import sounddevice  # noqa: F401
    except OSError:
        return False
    return plugin and all(shutil.which(program) for program in ("pulseaudio", "pacat", "pactl"))


needs_sound_card = pytest.mark.skipif(not has_sound_card(), reason=f"needs a virtual sound card (Debian: {PACKAGES})")


@contextmanager
def sound_card(folder: Path) -> Iterator[SoundCard]:
    card = SoundCard(folder)
    card.plug_in()
    try:
        yield card
    finally:
        card.unplug()
