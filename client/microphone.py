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
        self._device_rate, self._channels = self._choose(device)
        self._resample = Resampler(self._device_rate)
        self.rate = self._resample.rate
        self.dropped = 0.0  # seconds that nobody took in time
        self._pieces: deque[Samples] = deque()
        self._changed = asyncio.Event()
        self._stopped = False
        self._has_begun = False
        self._stream: Any = None

    async def __aenter__(self) -> Microphone:
        loop = asyncio.get_running_loop()

        def heard(data: Any, frames: int, clock: Any, status: Any) -> None:  # in PortAudio's thread
            loop.call_soon_threadsafe(self._take, np.array(data, dtype=np.float32))

        try:
            with _quiet_stderr():
                self._stream = self._sounddevice.InputStream(
                    device=self.device.number,
                    samplerate=self._device_rate,
                    channels=self._channels,
                    blocksize=round(BLOCK_SECONDS * self._device_rate),
                    dtype="float32",
                    callback=heard,
                )
                self._stream.start()
        except self._sounddevice.PortAudioError as error:
            raise MicrophoneError(
                f"{self.device.name} cannot be opened ({_first_line(error)}): another program may hold it, "
                "or this program may not use it; see the system's sound and privacy settings, or choose another with --device."
            ) from error
        return self

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
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), LOST_SECONDS if self._has_begun else FIRST_SECONDS)
            except TimeoutError:
                when = "any more: was it unplugged?" if self._has_begun else "at all; choose another with --device."
                raise MicrophoneError(f"{self.device.name} delivers nothing {when}") from None

    def _take(self, data: Samples) -> None:
        self._has_begun = True
        if self._stopped:
            return
        if len(self._pieces) * BLOCK_SECONDS > MOST_WAITING:
            self.dropped += BLOCK_SECONDS
            return
        self._pieces.append(self._resample(to_mono(data)))
        self._changed.set()

    def _choose(self, device: Device) -> tuple[int, int]:
        """A rate that the server takes where the device has one; one channel where it offers that."""
        rates = [device.rate] if LOWEST_RATE <= device.rate <= HIGHEST_RATE else [HIGHEST_RATE, 44_100, device.rate]
        for rate in rates:
            for channels in (1, device.channels):
                try:
                    with _quiet_stderr():
                        self._sounddevice.check_input_settings(device.number, channels, "float32", samplerate=rate)
                except (self._sounddevice.PortAudioError, ValueError):
                    continue
                return rate, channels
        return device.rate, 1  # opening it will say what is wrong


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].removeprefix("Error opening InputStream: ")


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
