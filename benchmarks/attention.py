"""How much faster is linear-time attention? The experiment of the paper's appendix F, on this machine.

Times hard monotonic attention against softmax attention over memories and outputs of 10 to 1000 entries. Both use the paper's
additive energy with the sizes of its Wall Street Journal model, random memories and random decoder states, and are compiled from
the same plain loops, so that nothing but the number of operations tells them apart. Run: python -m benchmarks.attention
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

MEMORY, HIDDEN = 256, 128
LENGTHS = (10, 20, 50, 100, 200, 500, 1000)
PROBLEMS = 5
SECONDS_PER_PROBLEM = 0.01

Floats = npt.NDArray[np.float32]


@numba.njit(fastmath=True, cache=False)
def softmax_attention(memory: Floats, keys: Floats, queries: Floats, direction: Floats, bias: float) -> Floats:
    """Contexts (U, MEMORY): each output looks at every entry."""
    contexts = np.zeros((len(queries), memory.shape[1]), np.float32)
    weights = np.empty(len(memory), np.float32)
    for i in range(len(queries)):
        highest = np.float32(-1e30)
        for j in range(len(memory)):
            energy = np.float32(bias)
            for d in range(len(direction)):
                energy += direction[d] * np.tanh(queries[i, d] + keys[j, d])
            weights[j] = energy
            highest = max(highest, energy)
        total = np.float32(0)
        for j in range(len(memory)):
            weights[j] = np.exp(weights[j] - highest)
            total += weights[j]
        for j in range(len(memory)):
            share = weights[j] / total
            for d in range(memory.shape[1]):
                contexts[i, d] += share * memory[j, d]
    return contexts


@numba.njit(fastmath=True, cache=False)
def hard_attention(memory: Floats, keys: Floats, queries: Floats, direction: Floats, bias: float) -> Floats:
    """Contexts (U, MEMORY): each output scans on from where the last one stopped, until an energy is above zero."""
    contexts = np.zeros((len(queries), memory.shape[1]), np.float32)
    j = 0
    for i in range(len(queries)):
        while j < len(memory):
            energy = np.float32(bias)
            for d in range(len(direction)):
                energy += direction[d] * np.tanh(queries[i, d] + keys[j, d])
            if energy > 0:
                contexts[i] = memory[j]
                break
            j += 1
        if j == len(memory):
            break  # the memory is read: all further contexts are zero
    return contexts


def seconds_per_call(function: Callable[..., Any], *arguments: Any) -> float:
    """The median over as many calls as fit."""
    times: list[float] = []
    while sum(times) < SECONDS_PER_PROBLEM or len(times) < 2:
        start = time.perf_counter()
        function(*arguments)
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def measure(entries: int, outputs: int, rng: np.random.Generator) -> tuple[float, float]:
    """Seconds that softmax and hard attention take for all contexts, averaged over random problems."""

    def uniform(*size: int) -> Floats:
        return rng.uniform(-1, 1, size).astype(np.float32)

    softmax, hard = 0.0, 0.0
    for _ in range(PROBLEMS):
        direction = uniform(HIDDEN)
        direction *= 4 / np.linalg.norm(direction)
        problem = (uniform(entries, MEMORY), uniform(entries, HIDDEN), uniform(outputs, HIDDEN), direction, 0.0)
        softmax += seconds_per_call(softmax_attention, *problem) / PROBLEMS
        hard += seconds_per_call(hard_attention, *problem) / PROBLEMS
    return softmax, hard


def growth(lengths: Sequence[int], times: Sequence[float]) -> float:
    """The power of the length that the time grows with, over the longer half of the lengths."""
    half = len(lengths) // 2
    return float(np.polyfit(np.log(lengths[half:]), np.log(times[half:]), 1)[0])


def plot(times: dict[tuple[int, int], tuple[float, float]], lengths: Sequence[int], path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    ratios = {cell: softmax / hard for cell, (softmax, hard) in times.items()}
    grid = np.array([[ratios[entries, outputs] for entries in lengths] for outputs in lengths])
    image = left.imshow(np.log10(grid), origin="lower", cmap="viridis")
    left.set_xticks(range(len(lengths)), lengths)
    left.set_yticks(range(len(lengths)), lengths)
    left.set(xlabel="input length T", ylabel="output length U", title="times as fast as softmax attention")
    for (row, column), value in np.ndenumerate(grid):
        dark = np.log10(value) < 0.6 * np.log10(grid.max())
        left.text(column, row, f"{value:.0f}", ha="center", va="center", color="white" if dark else "black", fontsize=8)
    figure.colorbar(image, label="log10 of the ratio")
    for name, which in (("softmax", 0), ("hard monotonic", 1)):
        taken = [times[length, length][which] for length in lengths]
        right.loglog(
            lengths, np.array(taken) / taken[0], marker="o", label=f"{name}: grows with length^{growth(lengths, taken):.2f}"
        )
    right.set(xlabel="T = U", ylabel=f"time, as a multiple of that for {lengths[0]}", title="growth with length")
    right.legend()
    right.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="of memories and outputs")
    parser.add_argument("--plot", type=Path, help="write the figure here")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args(arguments)
    lengths: Sequence[int] = options.lengths
    rng = np.random.default_rng(0)
    measure(10, 10, rng)  # compiles
    times = {(entries, outputs): measure(entries, outputs, rng) for entries in lengths for outputs in lengths}
    print("times as fast as softmax attention\n U \\ T " + "".join(f"{entries:>8}" for entries in lengths))
    for outputs in reversed(lengths):
        ratios = (softmax / hard for softmax, hard in (times[entries, outputs] for entries in lengths))
        print(f"{outputs:>6} " + "".join(f"{ratio:>8.1f}" for ratio in ratios))
    powers = {name: growth(lengths, [times[n, n][which] for n in lengths]) for which, name in enumerate(("softmax", "hard"))}
    for name, power in powers.items():
        print(f"{name}: time grows with length to the power of {power:.2f} (T = U)")
    if options.json:
        cells = [dict(input=t, output=u, softmax=s, hard=h, speedup=s / h) for (t, u), (s, h) in times.items()]
        options.json.write_text(json.dumps(dict(growth=powers, cells=cells), indent=1) + "\n")
    if options.plot:
        plot(times, lengths, options.plot)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
