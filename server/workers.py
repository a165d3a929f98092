"""Several processes behind one port. The parent holds the port, starts the others, and passes signals on."""

from __future__ import annotations

import dataclasses
import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from types import FrameType

from prometheus_client import multiprocess

from server.logs import set_up_logs
from server.metrics import SHARED_FOLDER
from server.relay import Relay
from server.run import UNUSABLE, bind, run_process
from server.settings import Settings

logger = logging.getLogger("monoscribe")

PATIENCE = 0.2  # seconds between two looks at the processes
QUICK_DEATH = 10.0  # seconds: who dies sooner will do so again
MOST_QUICK_DEATHS = 5


class Supervisor:
    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        self._settings = settings
        self._listener = listener  # holds the port, and listens to nobody
        port = listener.getsockname()[1]
        self._for_workers = dataclasses.replace(settings, port=port)
        self._spawn = multiprocessing.get_context("spawn")  # a fork would inherit threads' locks
        self._processes: dict[int, tuple[BaseProcess, float]] = {}
        self._signals: list[int] = []
        self._told = threading.Event()
        self._quick_deaths = 0
        self._exit_code = 0

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)
        with tempfile.TemporaryDirectory(prefix="monoscribe-") as folder:
            os.environ[SHARED_FOLDER] = folder
            for index in range(self._settings.workers):
                self._start(index, folder)
            return self._watch(folder)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)
        self._told.set()

    def _start(self, index: int, folder: str) -> None:
        process = self._spawn.Process(target=_run_worker, args=(self._for_workers, index, folder), name=f"worker-{index}")
        process.start()
        self._processes[index] = (process, time.monotonic())

    def _watch(self, folder: str) -> int:
        ending = False
        while self._processes:
            self._told.wait(PATIENCE)
            self._told.clear()
            while self._signals:
                self._signals.pop()
                ending = True
                for process, _ in self._processes.values():
                    if process.is_alive():
                        process.terminate()  # SIGTERM: it drains
            for index, (process, since) in list(self._processes.items()):
                if process.is_alive():
                    continue
                self._bury(index, process)
                if not ending and not self._may_restart(process, since):
                    self._exit_code = process.exitcode or 1
                    self._note(signal.SIGTERM, None)
                    ending = True
                elif not ending:
                    self._start(index, folder)
        return self._exit_code

    def _bury(self, index: int, process: BaseProcess) -> None:
        del self._processes[index]
        process.join()
        multiprocess.mark_process_dead(process.pid)  # type: ignore[no-untyped-call]

    def _may_restart(self, process: BaseProcess, since: float) -> bool:
        logger.error("a process died", extra={"worker": process.name, "exit_code": process.exitcode})
        self._quick_deaths = self._quick_deaths + 1 if time.monotonic() - since < QUICK_DEATH else 0
        return process.exitcode != UNUSABLE and self._quick_deaths < MOST_QUICK_DEATHS


def _run_worker(settings: Settings, index: int, folder: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears of Ctrl-C, too, and passes it on
    threading.Thread(target=_follow_parent, name="parent", daemon=True).start()
    set_up_logs(settings)
    listener = bind(settings)
    raise SystemExit(run_process(settings, listener, Relay(index, folder, with_tls=bool(settings.tls_certificate))))


def _follow_parent() -> None:
    """A process whose parent was killed would never be told to end."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
