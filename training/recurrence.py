"""LSTMs for training in bfloat16, by a kernel in C++ (recurrence.cpp) that is compiled where it is needed.

In a time loop, what surrounds the products takes as long as they do. Where the processor or a compiler is missing, torch's own
operations do the work, and take longer.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from functools import cache as remembered
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.conv_lstm import ConvLSTM, neighbours

SOURCE = Path(__file__).with_suffix(".cpp")
COMPILER = "g++"
# No start files: those that go with -ffast-math flush subnormal numbers to zero in the whole process.
FLAGS = ("-O3", "-march=native", "-ffast-math", "-nostartfiles", "-shared", "-fPIC")
PATIENCE = 300  # seconds, for the compiler
INSTRUCTIONS = "avx512_bf16"
UNITS = 32  # come in multiples of this
LSTM_CANDIDATE, CONV_LSTM_CANDIDATE = 2, 3  # the candidate's place among the four gates


def quicken(*networks: nn.Module) -> list[str]:
    """From now on, where products are in bfloat16 and gradients are enabled, the kernel runs their LSTMs.

    Returns the reasons why some of them, or all, go on as before.
    """
    if reason := missing():
        return [reason]
    odd = []
    for module in (module for network in networks for module in network.modules()):
        if isinstance(module, nn.LSTM) and module.hidden_size % UNITS == 0:
            module.forward = partial(_lstm, module)  # type: ignore[method-assign, assignment]
        elif isinstance(module, ConvLSTM) and module.bias.numel() % (4 * UNITS) == 0:
            module.forward = partial(_conv_lstm, module)  # type: ignore[method-assign]
        elif isinstance(module, nn.LSTM | ConvLSTM):
            odd.append(f"a layer's units are no multiple of {UNITS}")
    return odd


def missing() -> str:
    """Why there is no kernel here, or nothing."""
    try:
        known = INSTRUCTIONS in Path("/proc/cpuinfo").read_text().split()
    except OSError:
        known = False
    if not known:
        return f"the processor has no {INSTRUCTIONS}"
    try:
        kernel()
    except (OSError, subprocess.SubprocessError) as error:
        return f"it could not be compiled and loaded: {getattr(error, 'stderr', None) or error}"
    return ""


@remembered
def kernel() -> ctypes.CDLL:
    """The compiled kernel. It is compiled into a folder that is gone at once: the library stays in memory."""
    with tempfile.TemporaryDirectory(prefix="monoscribe-") as folder:
        library = Path(folder) / "recurrence.so"
        subprocess.run([COMPILER, *FLAGS, "-o", library, SOURCE], check=True, capture_output=True, text=True, timeout=PATIENCE)
        loaded = ctypes.CDLL(str(library))
    for function in (loaded.recur, loaded.recur_back):
        function.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_int64] * 5
        function.restype = None
    return loaded


def _lstm(lstm: nn.LSTM, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """What `lstm` does to (B, T, D), from a state of (1, B, units) each."""
    if not _wanted(x):
        return nn.LSTM.forward(lstm, x, state)
    input_weight, hidden_weight, input_bias, hidden_bias = lstm.all_weights[0]
    gates = functional.linear(x.transpose(0, 1).contiguous(), input_weight, input_bias + hidden_bias)  # (T, B, 4 * units)
    y, cell = _Recurrence.apply(gates, hidden_weight.t(), state[0][0], state[1][0], 0, LSTM_CANDIDATE)  # type: ignore[no-untyped-call]
    return y.transpose(0, 1), (y[-1:].float(), cell[None])


def _conv_lstm(layer: ConvLSTM, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What `layer` does to (B, T, F, channels), from hidden and cell (B, F, H)."""
    if not _wanted(x):
        return ConvLSTM.forward(layer, x, hidden, cell)
    gates = functional.linear(neighbours(x.transpose(0, 1)), layer.input_weight, layer.bias)  # (T, B, F, 4H)
    width, rows = x.shape[2], (gates.shape[1] * gates.shape[2], -1)
    y, cell = _Recurrence.apply(  # type: ignore[no-untyped-call]
        gates.flatten(1, 2), layer.hidden_weight.t(), hidden.reshape(rows), cell.reshape(rows), width, CONV_LSTM_CANDIDATE
    )
    y = y.view(*gates.shape[:3], -1)  # (T, B, F, H)
    return y.transpose(0, 1), y[-1].float(), cell.view(y.shape[1:])


def _wanted(x: Tensor) -> bool:
    return torch.is_grad_enabled() and torch.is_autocast_enabled("cpu") and x.device.type == "cpu"


class _Recurrence(torch.autograd.Function):
    """Gates (T, R, 4H) as the input's share, weight (depth, 4H), hidden and cell (R, H) -> outputs (T, R, H), the last cell (R, H).

    R counts streams, or streams times `width` frequencies. There is a gradient for gates and weight: sequences begin at nothing,
    and nobody asks for what is beyond their end.
    """

    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor, width: int, candidate: int
    ) -> tuple[Tensor, Tensor]:
        steps, rows, size = gates.shape
        units = size // 4
        gates, weight = gates.to(torch.bfloat16).contiguous(), weight.float().contiguous()
        outputs = torch.empty(steps + 1, rows, units, dtype=torch.bfloat16)
        cells, activated = torch.empty(steps + 1, rows, units), torch.empty(steps, rows, size)
        outputs[0], cells[0] = hidden, cell
        pointers = [tensor.data_ptr() for tensor in (gates, weight, outputs, cells, activated)]
        kernel().recur(*pointers, steps, rows, units, width, candidate)
        ctx.save_for_backward(outputs, cells, activated, weight)
        ctx.width, ctx.candidate = width, candidate
        last = cells[-1].clone()
        ctx.mark_non_differentiable(last)
        return outputs[1:], last

    @staticmethod
    def backward(ctx: Any, d_outputs: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        outputs, cells, activated, weight = ctx.saved_tensors
        steps, rows, size = activated.shape
        units = size // 4
        d_outputs, back = d_outputs.to(torch.bfloat16).contiguous(), weight.t().contiguous()
        d_gates = torch.empty(steps, rows, size, dtype=torch.bfloat16)
        pointers = [tensor.data_ptr() for tensor in (d_outputs, back, cells, activated, d_gates)]
        kernel().recur_back(*pointers, steps, rows, units, ctx.width, ctx.candidate)
        before = outputs[:-1]  # (T, R, H)
        if ctx.width:
            before = neighbours(before.view(steps, -1, ctx.width, units))
        d_weight = before.reshape(steps * rows, -1).t() @ d_gates.view(-1, size)
        return d_gates, d_weight.float(), None, None, None, None
