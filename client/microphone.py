"""Microphones, through PortAudio. Everything that can go wrong with them becomes a sentence."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from client.audio import HIGHEST_RATE, LOWEST_RATE, Resampler, Samples, to_mono
from client.events import AudioError

BLOCK_SECONDS = 0.05
LOST_SECONDS = 3.0  # a microphone that delivers nothing for so long is gone
FIRST_SECONDS = 10.0  # for the first piece: some sleep, and take their time to wake up
MOST_WAITING = 60.0  # seconds of audio, between the microphone and whoever takes it
USUAL_RATES = (48_000, 44_100, 16_000, 32_000, 96_000, 22_050, 11_025, 8_000)  # for devices that refuse their own
WRONG_SETTINGS = (-9997, -9998)  # PortAudio's codes for a rate or a number of channels that a device does not have


class MicrophoneError(AudioError):
    """No microphone, or none any more."""


@dataclass(frozen=True)
class Device:
    number: int
    name: str
    channels: int
    rate: int
    is_default: bool


def load_portaudio() -> Any:
    try:
        with _quiet_stderr():  # ALSA complains of every card that a machine does not have
            import sounddevice
    except OSError as error:
        raise MicrophoneError(
            f"PortAudio is missing ({error}); install it: `apt install libportaudio2` on Debian or Ubuntu, "
            "`dnf install portaudio` on Fedora, `brew install portaudio` on a Mac."
        ) from error
    except ImportError:
        raise  # the command line says what to install
    except Exception as error:  # PortAudio's own, which cannot be named before it is there
        raise MicrophoneError(f"The sound system does not start ({_first_line(error)}).") from error
    return sounddevice


def list_devices() -> list[Device]:
    sounddevice = load_portaudio()
    default = sounddevice.default.device[0]
    return [
        Device(number, device["name"], device["max_input_channels"], round(device["default_samplerate"]), number == default)
        for number, device in enumerate(sounddevice.query_devices())
        if device["max_input_channels"] > 0
    ]


def find_device(wanted: str | None) -> Device:
    """By number, by part of the name, or the default one."""
    devices = list_devices()
    if not devices:
        raise MicrophoneError("There is no microphone here, or the sound server does not run or may not be used by this user.")
    if wanted is None:
        return next((device for device in devices if device.is_default), devices[0])
    found = [device for device in devices if wanted in (str(device.number), device.name)]
    found = found or [device for device in devices if wanted.lower() in device.name.lower()]
    if len(found) != 1:
        what = "several microphones have that in their names" if found else "there is no such microphone"
        known = ", ".join(f"{device.number} ({device.name})" for device in found or devices)
        raise MicrophoneError(f"--device={wanted}: {what}; expected one of {known}.")
    return found[0]


class Microphone:
    """`async with` it, then `async for` pieces of mono audio at `rate`, until `stop` or until it is lost."""

    def __init__(self, device: Device) -> None:
        self._sounddevice = load_portaudio()
        self.device = device
        self._resample = Resampler(device.rate)
        self.dropped = 0.0  # seconds that nobody took in time
        self._pieces: deque[Samples] = deque()
        self._changed = asyncio.Event()
        self._stopped = False
        self._has_begun = False
        self._is_lost = False
        self._stream: Any = None

    @property
    def rate(self) -> int:
        """Known once it is open."""
        return self._resample.rate

    async def __aenter__(self) -> Microphone:
        first: Exception | None = None
        for rate, channels in self._settings():
            try:
                with _quiet_stderr():
                    self._open(rate, channels)
            except self._sounddevice.PortAudioError as error:
                first = first or error
                if len(error.args) < 2 or error.args[1] not in WRONG_SETTINGS:
                    break
            else:
                self._resample = Resampler(rate)
                return self
        assert first is not None
        raise MicrophoneError(f"{self.device.name} cannot be opened ({_first_line(first)}): {_advice(first)}.") from first

    async def __aexit__(self, *error: object) -> None:
        self._stopped = True
        if self._stream is not None:
            with _quiet_stderr():
                await asyncio.to_thread(self._stream.abort)
                self._stream.close()

    def stop(self) -> None:
        """What has been recorded is still delivered."""
        self._stopped = True
        self._changed.set()

    async def __aiter__(self) -> AsyncIterator[Samples]:
        while True:
            while self._pieces:
                yield self._pieces.popleft()
            if self._stopped:
                return
            if self._is_lost:
                when = "any more: was it unplugged?" if self._has_begun else "at all; choose another with --device."
                raise MicrophoneError(f"{self.device.name} delivers nothing {when}")
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), LOST_SECONDS if self._has_begun else FIRST_SECONDS)
            except TimeoutError:
                self._is_lost = True

    def _take(self, data: Samples) -> None:
        self._has_begun = True
        if self._stopped:
            return
        if len(self._pieces) * BLOCK_SECONDS > MOST_WAITING:
            self.dropped += BLOCK_SECONDS
            return
        self._pieces.append(self._resample(to_mono(data)))
        self._changed.set()

    def _settings(self) -> Iterator[tuple[int, int]]:
        """Rates and channels to try: the device's own rate if the server takes it; one channel if the device offers that."""
        own = self.device.rate
        rates = (own, *USUAL_RATES) if LOWEST_RATE <= own <= HIGHEST_RATE else (HIGHEST_RATE, 44_100, own, *USUAL_RATES)
        for rate in dict.fromkeys(rates):
            for channels in dict.fromkeys((1, self.device.channels)):
                yield rate, channels

    def _open(self, rate: int, channels: int) -> None:
        loop = asyncio.get_running_loop()

        def heard(data: Any, frames: int, clock: Any, status: Any) -> None:  # in PortAudio's thread, as is the next one
            loop.call_soon_threadsafe(self._take, np.array(data, dtype=np.float32))

        def ended() -> None:
            loop.call_soon_threadsafe(self._lose, stream)

        stream = self._sounddevice.InputStream(
            device=self.device.number,
            samplerate=rate,
            channels=channels,
            blocksize=round(BLOCK_SECONDS * rate),
            dtype="float32",
            callback=heard,
            finished_callback=ended,
        )
        try:
            stream.start()
        except self._sounddevice.PortAudioError:
            stream.close()
            raise
        self._stream = stream

    def _lose(self, stream: Any) -> None:
        if stream is self._stream:  # not one that never began
            self._is_lost = True
            self._changed.set()


def _advice(error: Exception) -> str:
    text = str(error).lower()
    if "denied" in text or "not permitted" in text:
        return (
            "this program may not use it; allow it in the system's privacy settings, "
            "or on Linux add yourself to the group that owns /dev/snd (often `audio`)"
        )
    if "busy" in text or "unavailable" in text:
        return "another program holds it; end that one, or choose another microphone with --device"
    if len(error.args) > 1 and error.args[1] in WRONG_SETTINGS:
        return "it offers no rate that is usual; choose another with --device"
    return "another program may hold it, or this one may not use it; see the system's sound and privacy settings"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].removeprefix("Error opening InputStream: ")


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Libraries in C write there what no user can make sense of; we say it in a sentence instead."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
