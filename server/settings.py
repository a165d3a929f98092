"""Everything that can be set about a server: one dataclass, from which flags and MONOSCRIBE_* variables follow."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PREFIX = "MONOSCRIBE_"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _setting(default: Any, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class SessionLimits:
    idle: float = 60.0  # seconds, as all but the last
    longest: float = 4 * 3600.0
    resume: float = 30.0
    beam: int = 8


@dataclass(frozen=True)
class Settings:
    host: str = _setting("127.0.0.1", "address to listen on; 0.0.0.0 for all")
    port: int = _setting(8000, "port to listen on; 0 for any free one")
    vosk_port: int = _setting(0, "port for clients of vosk-server, which has 2700; 0: none")
    wyoming_port: int = _setting(0, "port for Wyoming (Home Assistant), which has 10300; it knows no keys; 0: none")
    model: str = _setting("", "folder of the model; empty: the embedded one")
    workers: int = _setting(1, "processes, each with its own copy of the model; one per core is right")

    max_sessions: int = _setting(200, "live sessions per process; beyond, new ones get 503 with Retry-After, or close code 1013")
    max_message_bytes: int = _setting(1 << 20, "largest WebSocket message")
    buffer_seconds: float = _setting(10.0, "unprocessed audio per session; a client that sends faster is slowed by its socket")
    idle_seconds: float = _setting(60.0, "a session that sends nothing for so long is finished")
    session_seconds: float = _setting(4 * 3600.0, "longest session")
    max_beam: int = _setting(8, "most hypotheses that a session may ask for; `monoscribe mic`, `file` and the page ask for as many")
    resume_seconds: float = _setting(30.0, "how long a session whose connection broke is kept")
    request_seconds: float = _setting(10.0, "for the head of a request to come; a body may be so much late behind 1 kB/s")
    send_seconds: float = _setting(15.0, "a client that does not read for so long is dropped")
    journal_messages: int = _setting(512, "messages per session that are kept for a resume")
    drain_seconds: float = _setting(20.0, "after SIGTERM, how long open sessions may go on before they are finished")
    stall_seconds: float = _setting(60.0, "a step of the recogniser that takes so long counts as its death")
    gather_seconds: float = _setting(0.02, "least time between two steps when several streams are open: fuller batches cost less")

    max_upload_bytes: int = _setting(200 << 20, "largest file for transcription")
    upload_seconds: float = _setting(600.0, "longest time that the transcription of a file may take")

    api_keys: str = _setting("", "keys that clients must show, separated by commas; empty: none needed")
    api_keys_file: str = _setting("", "file with one key per line")
    allowed_origins: str = _setting("", "origins of other sites' pages that may connect, separated by commas; * for all")
    tls_certificate: str = _setting("", "file with the certificate chain (PEM)")
    tls_key: str = _setting("", "file with the certificate's private key (PEM)")

    log_format: str = _setting("text", "text or json")
    log_level: str = _setting("info", "debug, info, warning or error")
    log_text: bool = _setting(False, "write what was recognised to the log, too")

    def __post_init__(self) -> None:
        for name in ("port", "vosk_port", "wyoming_port"):
            _check_range(self, name, 0, 65_535)
        _check_range(self, "workers", 1, 256)
        _check_range(self, "max_sessions", 1, 100_000)
        _check_range(self, "max_beam", 1, 16)
        _check_range(self, "max_message_bytes", 1024, 1 << 30)
        _check_range(self, "buffer_seconds", 0.5, 3600)
        _check_range(self, "journal_messages", 16, 1 << 20)
        for name in ("idle_seconds", "session_seconds", "request_seconds", "send_seconds", "upload_seconds", "stall_seconds"):
            _check_range(self, name, 0.1, 30 * 86_400)
        for name in ("resume_seconds", "drain_seconds"):
            _check_range(self, name, 0, 86_400)
        _check_range(self, "gather_seconds", 0, 1)
        _check_range(self, "max_upload_bytes", 1024, 1 << 40)
        _check_choice(self, "log_format", ("text", "json"))
        _check_choice(self, "log_level", ("debug", "info", "warning", "error"))
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError("tls_certificate, tls_key: expected both or neither")
        for name in ("tls_certificate", "tls_key", "api_keys_file"):
            path = getattr(self, name)
            if path and not Path(path).is_file():
                raise ValueError(f"{name}={path}: expected a file that exists")

    @property
    def keys(self) -> tuple[str, ...]:
        listed = self.api_keys.split(",")
        if self.api_keys_file:
            listed += Path(self.api_keys_file).read_text().splitlines()
        return tuple(key.strip() for key in listed if key.strip())

    @property
    def origins(self) -> tuple[str, ...]:
        return tuple(origin.strip().rstrip("/") for origin in self.allowed_origins.split(",") if origin.strip())

    @property
    def is_local(self) -> bool:
        return self.host in LOOPBACK

    @property
    def session_limits(self) -> SessionLimits:
        return SessionLimits(self.idle_seconds, self.session_seconds, self.resume_seconds, self.max_beam)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """A flag per setting: `--max-sessions`, after which comes MONOSCRIBE_MAX_SESSIONS, after which the default."""
    for field in dataclasses.fields(Settings):
        parser.add_argument(
            _flag(field),
            dest=field.name,
            default=None,
            metavar="on|off" if isinstance(field.default, bool) else type(field.default).__name__.upper(),
            help=f"{field.metadata['help']} (default {_shown(field.default)}; {_variable(field)})",
        )


def read_settings(flags: Mapping[str, str | None], environment: Mapping[str, str] = os.environ) -> Settings:
    """Flags go before variables, variables before defaults. A wrong value is a ValueError that names where it came from."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Settings):
        for source, text in ((_flag(field), flags.get(field.name)), (_variable(field), environment.get(_variable(field)))):
            if text is not None:
                values[field.name] = _convert(source, text, type(field.default))
                break
    known = {_variable(field) for field in dataclasses.fields(Settings)}
    unknown = sorted(name for name in environment if name.startswith(PREFIX) and name not in known)
    if unknown:
        raise ValueError(f"{unknown[0]}: no such setting; expected one of {', '.join(sorted(known))}")
    return Settings(**values)


def _convert(source: str, text: str, kind: type) -> Any:
    if kind is bool:
        choices = {"on": True, "true": True, "1": True, "yes": True, "off": False, "false": False, "0": False, "no": False}
        if text.lower() not in choices:
            raise ValueError(f"{source}={text}: expected on or off")
        return choices[text.lower()]
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{source}={text}: expected {'a whole number' if kind is int else 'a number'}") from None


def _check_range(settings: Settings, name: str, least: float, most: float) -> None:
    value = getattr(settings, name)
    if not least <= value <= most:  # says no to NaN, too
        raise ValueError(f"{name}={value}: expected {least}..{most}")


def _check_choice(settings: Settings, name: str, choices: tuple[str, ...]) -> None:
    if getattr(settings, name) not in choices:
        raise ValueError(f"{name}={getattr(settings, name)}: expected {' or '.join(choices)}")


def _flag(field: dataclasses.Field[Any]) -> str:
    return "--" + field.name.replace("_", "-")


def _variable(field: dataclasses.Field[Any]) -> str:
    return PREFIX + field.name.upper()


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value) if value != "" else "none"
