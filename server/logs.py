"""Logs: one line per event, as text or JSON. No audio, and no text unless asked for."""

from __future__ import annotations

import json
import logging
import sys
import time

from server.live import Live
from server.messages import Closed, Error, Ready, SegmentEnd, ServerMessage
from server.settings import Settings

logger = logging.getLogger("monoscribe")

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class LineFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO session opened session=abc`, or the same as JSON."""

    converter = staticmethod(time.gmtime)

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        stamp = self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}Z"
        extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            extra["exception"] = self.formatException(record.exc_info)
        if self._as_json:
            fields = {"time": stamp, "level": record.levelname.lower(), "message": record.getMessage(), "logger": record.name}
            return json.dumps(fields | extra, default=str)
        told = "".join(f" {name}={one_line(value)}" for name, value in extra.items() if name != "exception")
        trace = "\n" + extra["exception"] if "exception" in extra else ""
        return f"{stamp} {record.levelname} {record.getMessage()}{told}{trace}"


def one_line(value: object) -> str:
    """A client's words must not pass for lines of the log."""
    text = str(value)
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def set_up_logs(settings: Settings) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(as_json=settings.log_format == "json"))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)


def public_name(session: str) -> str:
    """Enough of a session's name to follow it through the log, not enough to resume it."""
    return session[:8]


class SessionLog:
    def __init__(self, *, with_text: bool) -> None:
        self._with_text = with_text

    def said(self, live: Live, message: ServerMessage) -> None:
        name = public_name(live.name)
        told: dict[str, object]
        match message:
            case Ready(resumed=False):
                start = message.accepted
                logger.info("session opened", extra={"session": name, "encoding": start.encoding, "sample_rate": start.sample_rate})
            case Error():
                told = {"session": name, "code": message.code, "field": message.field, "fatal": message.fatal}
                logger.warning("session error", extra=told)
            case Closed():
                told = {"session": name, "reason": message.reason, "seconds": message.received, "segments": message.segments}
                logger.info("session closed", extra=told | {"characters": message.characters})
            case SegmentEnd() if self._with_text:
                logger.info("segment", extra={"session": name, "start": message.start, "end": message.end, "text": message.text})
