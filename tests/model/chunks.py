"""Random chunkings."""

from __future__ import annotations

from itertools import pairwise

import torch
from hypothesis import strategies as st
from torch import Tensor


def chunk_sizes(total: int, multiple: int = 1) -> st.SearchStrategy[list[int]]:
    """Lists of sizes, each a multiple of `multiple`, that add up to `total`; small chunks and large ones, none empty."""
    units = total // multiple

    def sizes(cuts: set[int]) -> list[int]:
        edges = [0, *sorted(cuts), units]
        return [(right - left) * multiple for left, right in pairwise(edges)]

    return st.sets(st.integers(1, units - 1), max_size=units - 1).map(sizes)


def split(tensor: Tensor, sizes: list[int], dim: int) -> tuple[Tensor, ...]:
    return torch.split(tensor, sizes, dim=dim)
