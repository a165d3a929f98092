"""`monoscribe mic`: a microphone to text, live."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import soundfile

from client.audio import Samples
from client.events import AudioError, ClientError, ConnectionFailedError
from client.flags import AUDIO_FAILED, INTERRUPTED, SERVER_FAILED, USAGE, UsageError, session_options
from client.microphone import Microphone, find_device, list_devices
from client.output import Output, OutputError
from client.screen import Screen
from client.session import Session, connect

BUFFER_SECONDS = 1800.0  # a server may be away for so long before anything is lost
RECONNECT_SECONDS = 900.0
STATUS_INTERVAL = 0.5  # seconds: how fresh the lag is
SILENT_SECONDS = 4.0  # of nothing but zeros: no room is that quiet


def run(chosen: argparse.Namespace) -> int:
    try:
        if chosen.list_devices:
            return _show_devices()
        return asyncio.run(_run(chosen))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED
    except UsageError as error:
        return _complain(error, USAGE)
    except (AudioError, OutputError) as error:
        return _complain(error, AUDIO_FAILED)
    except ClientError as error:
        return _complain(error, SERVER_FAILED)


def _complain(error: ClientError, code: int) -> int:
    if not isinstance(error.__cause__, BrokenPipeError):  # whoever read our output has seen enough
        print(f"monoscribe mic: {error}", file=sys.stderr)
    return code


def _show_devices() -> int:
    devices = list_devices()
    for device in devices:
        mark = "*" if device.is_default else " "
        print(f"{mark} {device.number:3d}  {device.name}  ({device.channels} channels, {device.rate} Hz)")
    if not devices:
        find_device(None)  # says why
    return 0


async def _run(chosen: argparse.Namespace) -> int:
    """The microphone first: what is said while the connection comes about is heard, too."""
    async with Microphone(find_device(chosen.device)) as microphone:
        return await _transcribe(chosen, microphone)


async def _transcribe(chosen: argparse.Namespace, microphone: Microphone) -> int:
    options = session_options(chosen) | {
        "sample_rate": microphone.rate,
        "buffer_seconds": BUFFER_SECONDS,
        "reconnect_seconds": RECONNECT_SECONDS,
        "status_interval": STATUS_INTERVAL,
    }
    async with connect(chosen.server, **options) as session:
        with ExitStack() as stack:
            save = stack.enter_context(_recording(chosen.save, microphone.rate))
            screen = stack.enter_context(Screen())
            outputs = [stack.enter_context(Output(chosen.format, Path(chosen.output) if chosen.output else None, screen.show))]
            outputs[0].transcript.model = session.model
            if chosen.output:  # the file gets the format, the screen the text
                outputs.append(stack.enter_context(Output("text", None, screen.show)))
            stack.enter_context(_interruptible(microphone.stop))
            listening = asyncio.create_task(_listen(microphone, session, screen, save), name="microphone")
            try:
                async for event in session:
                    screen.hear(event)
                    for output in outputs:
                        output.hear(event)
            except ConnectionFailedError as error:
                raise ConnectionFailedError(f"{error} {keep_untold(session)}") from error
            except asyncio.CancelledError:  # a second Ctrl-C
                if screen.is_away:
                    screen.say(keep_untold(session))
                raise
            finally:
                listening.cancel()
                results = await asyncio.gather(listening, return_exceptions=True)
            if isinstance(results[0], Exception):
                raise results[0]
    return 0


async def _listen(microphone: Microphone, session: Session, screen: Screen, save: Callable[[Samples], None]) -> None:
    """Passes on what the microphone delivers. However it ends, what was recorded is transcribed."""
    seconds, silent, warned = 0.0, 0.0, False
    try:
        async for samples in microphone:
            save(samples)
            await session.send(samples)
            seconds += len(samples) / microphone.rate
            level = float(np.sqrt(np.mean(np.square(samples)))) if len(samples) else 0.0
            silent = silent + len(samples) / microphone.rate if level == 0 else 0.0
            if silent > SILENT_SECONDS and not warned:
                screen.say(f"Only silence comes from {microphone.device.name}: is it muted, or may this program not use it?")
                warned = True
            screen.sent(seconds, level)
        screen.note("finishing; Ctrl-C again ends at once")
    finally:
        await session.stop()
        if microphone.dropped:
            screen.say(f"{microphone.dropped:.1f} s of audio were lost: the server was away for too long.")


@contextmanager
def _recording(path: str, rate: int) -> Iterator[Callable[[Samples], None]]:
    """Where the audio is kept, if anywhere."""
    if not path:
        yield lambda samples: None
        return
    try:
        file = soundfile.SoundFile(path, "w", samplerate=rate, channels=1)
    except (soundfile.LibsndfileError, OSError, TypeError, ValueError) as error:
        raise OutputError(
            f"--save={path}: cannot be written ({error}); expected a name that ends in .wav, .flac or .ogg."
        ) from error

    def write(samples: Samples) -> None:
        try:
            file.write(samples)
        except soundfile.LibsndfileError as error:
            raise OutputError(f"--save={path}: breaks off ({error}); is there no room left?") from error

    with file:
        yield write


@contextmanager
def _interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C ends the recording, and the rest is still said; the second ends everything."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    presses = 0

    def interrupt(*_: object) -> None:
        nonlocal presses
        presses += 1
        loop.call_soon_threadsafe(stop if presses == 1 else task.cancel)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def keep_untold(session: Session) -> str:
    """Nothing that was recorded is lost, even if no server comes back."""
    audio = session.untold()
    if not audio:
        return "Everything that was said before has been transcribed."
    samples = np.frombuffer(audio, "<i2")
    lost = f"The last {len(samples) / session.options.sample_rate:.0f} s were not transcribed"
    for folder in (Path(), Path(tempfile.gettempdir())):
        path = folder / time.strftime("monoscribe-%Y%m%d-%H%M%S.wav")
        with suppress(soundfile.LibsndfileError):
            soundfile.write(path, samples, session.options.sample_rate, subtype="PCM_16")
            return f"{lost}; they are in {path}, for `monoscribe file {path}`."
    return f"{lost}, and could not be kept: neither this folder nor that of temporary files can be written."
