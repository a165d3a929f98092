"""vosk behind a WebSocket, as the project vosk-server serves it: asyncio, a recogniser per connection, a pool of threads.

Run: python -m benchmarks.vosk_server --model FOLDER. It says where it listens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection, serve

RATE = 16_000


def hear(recognizer: Any, message: str | bytes) -> tuple[str, bool]:
    """The reply, and whether it was the last."""
    if isinstance(message, str) and "eof" in message:
        return recognizer.FinalResult(), True
    return (recognizer.Result() if recognizer.AcceptWaveform(message) else recognizer.PartialResult()), False


async def run(folder: Path) -> None:
    from vosk import KaldiRecognizer, Model, SetLogLevel

    SetLogLevel(-1)
    model = Model(str(folder))
    loop = asyncio.get_running_loop()

    async def converse(socket: ServerConnection) -> None:
        rate, recognizer = RATE, None
        async for message in socket:
            if isinstance(message, str) and "config" in message:
                rate = int(json.loads(message)["config"].get("sample_rate", rate))
                continue
            if recognizer is None:
                recognizer = KaldiRecognizer(model, rate)
                recognizer.SetWords(True)
            reply, is_last = await loop.run_in_executor(pool, hear, recognizer, message)
            await socket.send(reply)
            if is_last:
                return

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        async with serve(converse, "127.0.0.1", 0, ping_interval=None, compression=None, max_size=None) as server:
            host, port = next(iter(server.sockets)).getsockname()[:2]
            print(f"vosk: ws://{host}:{port}", flush=True)
            await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    asyncio.run(run(parser.parse_args().model))
