"""State of a recogniser: immutable dataclasses of tensors whose first dimension is the stream.

Modules hold parameters only; whatever one chunk of audio leaves behind for the next is a `State`, handed in and handed back.
Since every tensor has the stream as its first dimension, states of many streams join into one and part again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class State:
    """Base class: each field is a tensor (streams, ...), another State, or a tuple of States."""

    def map(self, function: Callable[..., Tensor], *others: Self) -> Self:
        """The state whose tensors are `function` of this state's tensors and the same ones of `others`."""
        values = {}
        for entry in fields(self):
            parts = [getattr(state, entry.name) for state in (self, *others)]
            values[entry.name] = _map(function, parts)
        return type(self)(**values)

    def rows(self, index: Tensor) -> Self:
        """The streams `index` of this state."""
        return self.map(lambda tensor: tensor.index_select(0, index))

    def with_rows(self, index: Tensor, part: Self) -> Self:
        """This state with the streams `index` replaced by `part`."""
        return self.map(lambda tensor, new: tensor.index_copy(0, index, new), part)

    def put(self, index: Tensor, part: Self) -> None:
        """Replaces the streams `index` of a state that nobody else holds by `part`, in place."""
        self.map(lambda tensor, new: tensor.index_copy_(0, index, new), part)

    def copy(self) -> Self:
        return self.map(torch.clone)

    def join(self, *others: Self) -> Self:
        """The streams of this state, followed by those of `others`."""
        return self.map(lambda *tensors: torch.cat(tensors), *others)


def _map(function: Callable[..., Tensor], parts: Sequence[object]) -> object:
    first = parts[0]
    if isinstance(first, State):
        return first.map(function, *parts[1:])  # type: ignore[arg-type]
    if isinstance(first, tuple):
        return tuple(_map(function, column) for column in zip(*parts, strict=True))
    return function(*parts)
