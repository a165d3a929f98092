"""The audio that may have to be sent again: a bounded window of one long stream of bytes, addressed by position."""

from __future__ import annotations

from collections import deque


class AudioBuffer:
    """Keeps what lies between `start` and `end`. Pieces are kept as they came, so that appending and forgetting cost little."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self._pieces: deque[bytes] = deque()

    def __len__(self) -> int:
        return self.end - self.start

    def append(self, data: bytes) -> None:
        if data:
            self._pieces.append(bytes(data))
            self.end += len(data)

    def read(self, position: int, most: int) -> bytes:
        """Up to `most` bytes from `position` on."""
        if not self.start <= position <= self.end:
            raise ValueError(f"position={position}: expected {self.start}..{self.end}")
        found = bytearray()
        at = self.start
        for piece in self._pieces:
            if at + len(piece) > position:
                found += piece[max(0, position - at) : max(0, position - at) + most - len(found)]
                if len(found) >= most:
                    break
            at += len(piece)
        return bytes(found)

    def forget(self, position: int) -> None:
        """Drops what lies before `position`."""
        while self._pieces and self.start < position:
            piece = self._pieces.popleft()
            cut = min(len(piece), position - self.start)
            if cut < len(piece):
                self._pieces.appendleft(piece[cut:])
            self.start += cut
