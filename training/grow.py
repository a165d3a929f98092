"""A larger network that begins as a smaller one was (after Chen, Goodfellow and Shlens, "Net2Net", 2016, arXiv:1511.05641).

New units listen to everything, as initialised, but those that were there do not listen to them yet: the larger network says what
the smaller one says, until training finds a use for the rest.
"""

from __future__ import annotations

from itertools import product

from torch import Tensor

GATES = 4
FIRST_INPUTS = "encoder.lstms.0.lstm.weight_ih_l0"  # its columns are what the convolutions give
DECODER_STATE = "decoder.lstm.weight_hh_l0"
BY_SYMBOL = ("ctc.", "decoder.embedding.", "decoder.output.")  # a row per symbol


def grown(initialized: dict[str, Tensor], weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a network, from its own initial ones and those of a smaller network.

    LSTMs, projections, the decoder and its energies may grow. What has another shape in any other way stays as initialised.
    """
    if not {"ctc.weight", DECODER_STATE} <= weights.keys():
        raise ValueError(f"from: no tensors ctc.weight and {DECODER_STATE}; expected the weights of a model of ours")
    result = {}
    for name, own in initialized.items():
        old = weights.get(name)
        result[name] = own if old is None else old if old.shape == own.shape else _corner(name, initialized, weights)
    return result


def _corner(name: str, initialized: dict[str, Tensor], weights: dict[str, Tensor]) -> Tensor:
    own, old = initialized[name].clone(), weights[name]
    convolved = "conv" in name or (name == FIRST_INPUTS and own.shape[1] != old.shape[1])
    renamed = name.startswith(BY_SYMBOL) and own.shape[0] != old.shape[0]  # other symbols: phones are no characters
    if own.dim() != old.dim() or convolved or renamed or name.startswith("features."):
        return own
    blocks = [(_blocks(name, dim, initialized), _blocks(name, dim, weights)) for dim in range(own.dim())]
    if any(len(large) != len(small) for large, small in blocks):  # one output layer sees the context, the other does not
        return own
    pairs = [list(zip(large, small, strict=True)) for large, small in blocks]
    if any(large < small for sides in pairs for large, small in sides):
        return own
    bilinear = name.endswith("energy.memory_weight.weight") and name.replace("memory", "query") not in initialized
    if name.endswith("energy.direction") or bilinear:
        own.zero_()  # what is summed up for the energy
    for chosen in product(*map(_ranges, pairs)):
        into, there, block = zip(*chosen, strict=True)
        if own.dim() == 2:
            own[into[0], block[1]] = 0.0  # what there was does not listen to what is new
        own[into] = old[there]
    return own


def _blocks(name: str, dim: int, weights: dict[str, Tensor]) -> list[int]:
    """Of which parts the rows or the columns of a tensor are made: those of an LSTM's gates, or those of joined inputs."""
    size, memory = weights[name].shape[dim], weights["ctc.weight"].shape[1]
    if dim == 0 and ".lstm." in name:
        return [size // GATES] * GATES
    if dim == 1 and name == "decoder.lstm.weight_ih_l0":
        return [size - memory, memory]
    if dim == 1 and name == "decoder.output.weight" and size != weights[DECODER_STATE].shape[1]:
        return [memory, size - memory]
    return [size]


def _ranges(sides: list[tuple[int, int]]) -> list[tuple[slice, slice, slice]]:
    """For each part: where the old one goes, where it was, and the whole of the new one."""
    found, large_start, small_start = [], 0, 0
    for large, small in sides:
        into = slice(large_start, large_start + small)
        found.append((into, slice(small_start, small_start + small), slice(large_start, large_start + large)))
        large_start, small_start = large_start + large, small_start + small
    return found
