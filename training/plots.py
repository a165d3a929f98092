"""Pictures of a run: curves over steps, and alignments as the paper draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imsave
from torch import Tensor

from model.features import FRAMES_PER_SECOND
from model.hard import HardDecoder
from model.network import Network
from training.batches import collate
from training.cache import CachedUtterance, FeatureCache
from training.text import Spelling, spelling_of

OF_NO_INTEREST = {"step", "skipped", "realtime", "dev", "dev_loss", "learning_rate", "gradient_norm"}
MOST_TICKS = 60
SoftMode = Literal["soft", "softmax"]


def save_figure(figure: Figure, path: Path) -> npt.NDArray[np.uint8]:
    """Writes the picture as a whole or not at all; returns its pixels (height, width, 3)."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels: npt.NDArray[np.uint8] = np.asarray(canvas.buffer_rgba())[..., :3].copy()  # type: ignore[no-untyped-call]
    partial = path.with_suffix(".partial")
    imsave(partial, pixels, format="png")
    partial.replace(path)
    return pixels


def new_figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), dpi=100, layout="constrained")


def curves_figure(entries: Sequence[Mapping[str, Any]]) -> Figure:
    """Parts of the loss, gradient norm, and error rates on the dev sets, over steps."""
    figure = new_figure(17, 4.5)
    losses, gradient, dev = figure.subplots(1, 3)
    steps = [entry["step"] for entry in entries]
    evaluated = [entry for entry in entries if "dev_loss" in entry]
    for name in sorted({name for entry in entries for name in entry} - OF_NO_INTEREST):
        (line,) = losses.plot(steps, [entry.get(name, np.nan) for entry in entries], label=name)
        if any(name in entry["dev_loss"] for entry in evaluated):
            points_of_dev = [entry["dev_loss"].get(name, np.nan) for entry in evaluated]
            dev_steps = [entry["step"] for entry in evaluated]
            losses.plot(dev_steps, points_of_dev, "--.", color=line.get_color(), label=f"{name}, dev")
    losses.set(title="loss per label", xlabel="step")
    gradient.plot(steps, [entry.get("gradient_norm", np.nan) for entry in entries], color="tab:gray")
    gradient.set(title="gradient norm", xlabel="step", yscale="log")
    points: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for entry in entries:
        for decoder, parts in entry.get("dev", {}).items():
            for part, rates in parts.items():
                for name, rate in rates.items():
                    points.setdefault((f"{decoder}, {part or 'all'}", name), []).append((entry["step"], 100 * rate))
    series = sorted({of for of, _ in points})
    for (of, name), line in sorted(points.items()):
        by_characters = name == "cer"
        label = None if by_characters else of
        dev.plot(*zip(*line, strict=True), f"C{series.index(of)}{'--' if by_characters else '-'}", marker=".", label=label)
    dev.set(title="dev error rates, %: words, and dashed characters", xlabel="step", ylim=(0, 105))
    for axes in (losses, dev):
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1, 1))
    for axes in (losses, gradient, dev):
        axes.grid(alpha=0.3)
    return figure


@torch.inference_mode()
def alignment_figure(
    network: Network, cache: FeatureCache, utterances: Sequence[CachedUtterance], mode: SoftMode = "soft"
) -> Figure:
    """One column per utterance: hard alignment of what is said, soft alignment of what should be, the features below.

    Black is 1, white is 0. Time runs to the right, symbols run upwards.
    """
    figure = new_figure(1 + 6 * len(utterances), 9)
    columns = figure.subplots(3, len(utterances), squeeze=False, height_ratios=[3, 3, 1], sharex="col")
    spelling = spelling_of(network.symbols)
    for utterance, (top, middle, bottom) in zip(utterances, columns.T, strict=True):
        labels = spelling.encode(utterance.text)
        batch = collate(cache, [utterance], [labels], network.config.encoder.reduction)
        frames, _, _ = network.features.normalized(batch.mels, network.features.initial_state(1))
        memory, _ = network.encoder(frames, network.encoder.initial_state(1))
        seconds = batch.mels.shape[1] / FRAMES_PER_SECOND
        hard, said = hard_alignment(network, memory)
        draw_alignment(top, hard, said, seconds, spelling)
        soft = soft_alignment(network, memory, labels, mode)
        draw_alignment(middle, soft, [*labels, network.symbols.end], seconds, spelling)
        bottom.imshow(frames[0, :, :, 0].T.numpy(), origin="lower", aspect="auto", extent=(0, seconds, 0, frames.shape[2]))
        bottom.set(xlabel="seconds", ylabel="mel band")
        top.set_title(f"hard: {spelling.decode(said) or '(nothing)'}", fontsize=8, wrap=True)
        middle.set_title(f"{mode}, of the reference: {spelling.reference(utterance.text)}", fontsize=8, wrap=True)
    return figure


def hard_alignment(network: Network, memory: Tensor) -> tuple[npt.NDArray[np.float32], list[int]]:
    """Where (U, T) the hard process says each symbol, and the symbols (U), up to the first end symbol."""
    decoder = HardDecoder(network.decoder, network.symbols)
    every = torch.ones(memory.shape[:2], dtype=torch.bool)
    said, _ = decoder(memory, every, decoder.initial_state(1))
    symbols = [each.symbol for each in said]
    if network.symbols.end in symbols:
        said = said[: symbols.index(network.symbols.end)]
    matrix = np.zeros((len(said), memory.shape[1]), dtype=np.float32)
    for row, each in enumerate(said):
        matrix[row, each.entry] = 1
    return matrix, [each.symbol for each in said]


def soft_alignment(network: Network, memory: Tensor, labels: list[int], mode: SoftMode) -> npt.NDArray[np.float32]:
    """alpha (U + 1, T) for the labels of the reference and the end symbol."""
    mask = torch.ones(memory.shape[:2], dtype=torch.bool)
    taught = network.decoder.attend(memory, mask, torch.tensor([[network.symbols.start, *labels]]), mode)
    alpha: npt.NDArray[np.float32] = taught.alpha[0].numpy()
    return alpha


def draw_alignment(axes: Axes, matrix: npt.NDArray[np.float32], symbols: Sequence[int], seconds: float, spelling: Spelling) -> None:
    if len(matrix):
        extent = (0, seconds, -0.5, len(matrix) - 0.5)
        options: dict[str, Any] = dict(cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        axes.imshow(matrix, origin="lower", aspect="auto", extent=extent, **options)
    names = [spelling.table.symbols[symbol].replace(" ", "␣") for symbol in symbols]
    if len(names) <= MOST_TICKS:
        axes.set_yticks(range(len(names)), names, fontsize=6, family="DejaVu Sans Mono")
    axes.set_ylabel("symbols")
