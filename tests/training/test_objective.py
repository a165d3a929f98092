"""The loss against numbers computed by hand."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from training.alignment import ctc_positions
from training.batches import Batch
from training.objective import as_heard, ctc_loss, disagreement, smoothed_cross_entropy, teacher_forcing

PAPER = (0.015, 0.035, 1.0, 0.035, 0.015)


def test_teacher_forcing_shifts_labels_by_one() -> None:
    inputs, targets, exists = teacher_forcing(torch.tensor([[5, 6, 7], [8, 0, 0]]), torch.tensor([3, 1]), start=0, end=1)
    assert inputs.tolist() == [[0, 5, 6, 7], [0, 8, 0, 0]]
    assert targets.tolist() == [[5, 6, 7, 1], [8, 1, 0, 0]]
    assert exists.tolist() == [[True] * 4, [True, True, False, False]]


def test_label_smoothing_mixes_five_neighbours() -> None:
    """In the middle of a long sequence: (0.015 y-2 + 0.035 y-1 + y + 0.035 y+1 + 0.015 y+2) / 1.1."""
    torch.manual_seed(0)
    logits = torch.randn(1, 5, 4)
    targets = torch.tensor([[0, 1, 2, 3, 1]])
    scores = logits.log_softmax(-1)[0]
    expected = 0.0
    for time in range(5):
        weights = {t: PAPER[t - time + 2] for t in range(5) if abs(t - time) <= 2}
        mixed = sum(weight * float(scores[time, targets[0, t]]) for t, weight in weights.items())
        expected -= mixed / sum(weights.values())  # in the middle the sum is 1.1
    loss = smoothed_cross_entropy(logits, targets, torch.ones(1, 5, dtype=torch.bool), PAPER)
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_label_smoothing_of_a_uniform_guess_is_the_log_of_the_symbols() -> None:
    loss = smoothed_cross_entropy(torch.zeros(2, 3, 49), torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3) > 0, PAPER)
    assert float(loss) == pytest.approx(6 * math.log(49), rel=1e-5)


def test_label_smoothing_ignores_what_is_beyond_the_end() -> None:
    torch.manual_seed(1)
    logits, targets = torch.randn(1, 6, 5), torch.randint(0, 5, (1, 6))
    exists = torch.arange(6)[None] < 4
    short = smoothed_cross_entropy(logits[:, :4], targets[:, :4], exists[:, :4], PAPER)
    assert float(smoothed_cross_entropy(logits, targets, exists, PAPER)) == pytest.approx(float(short), rel=1e-6)


def test_without_smoothing_it_is_the_cross_entropy() -> None:
    torch.manual_seed(2)
    logits, targets = torch.randn(2, 3, 5), torch.randint(0, 5, (2, 3))
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    assert float(smoothed_cross_entropy(logits, targets, torch.ones(2, 3) > 0, (1.0,))) == pytest.approx(float(expected), rel=1e-5)


def paths(labels: list[int], entries: int, blank: int) -> list[tuple[int, ...]]:
    """Every CTC path of `labels`: with repetitions and blanks left out it reads like them."""

    def read(path: tuple[int, ...]) -> list[int]:
        return [symbol for symbol, _ in itertools.groupby(path) if symbol != blank]

    return [path for path in itertools.product({blank, *labels}, repeat=entries) if read(path) == labels]


def first_entries(path: tuple[int, ...], blank: int) -> list[int]:
    return [t for t, symbol in enumerate(path) if symbol != blank and (t == 0 or path[t - 1] != symbol)]


@pytest.mark.parametrize("labels", [[1], [1, 2], [1, 1], [2, 1, 2], [1, 1, 1]])
def test_viterbi_finds_what_brute_force_finds(labels: list[int]) -> None:
    for seed in range(5):
        torch.manual_seed(seed)
        entries = 6
        scores = torch.randn(1, entries, 3).mul(2).log_softmax(-1)
        best = max(paths(labels, entries, 0), key=lambda path: sum(float(scores[0, t, s]) for t, s in enumerate(path)))
        found = ctc_positions(scores, torch.tensor([entries]), torch.tensor([labels]), torch.tensor([len(labels)]), blank=0)
        assert found[0].tolist() == first_entries(best, 0)


def test_viterbi_of_a_padded_batch_is_that_of_each_utterance() -> None:
    torch.manual_seed(3)
    scores = torch.randn(3, 9, 5).mul(2).log_softmax(-1)
    labels = torch.tensor([[1, 2, 3, 4], [4, 4, 0, 0], [2, 0, 0, 0]])
    lengths, label_lengths = torch.tensor([9, 6, 3]), torch.tensor([4, 2, 1])
    together = ctc_positions(scores, lengths, labels, label_lengths, blank=0)
    for row in range(3):
        length, count = int(lengths[row]), int(label_lengths[row])
        one = slice(row, row + 1)
        alone = ctc_positions(scores[one, :length], lengths[one], labels[one, :count], label_lengths[one], blank=0)
        assert together[row, :count].tolist() == alone[0].tolist()
        assert together[row, count:].tolist() == [0] * (4 - count)


def test_ctc_loss_sums_the_probability_of_every_path() -> None:
    torch.manual_seed(4)
    scores = torch.randn(1, 5, 3).log_softmax(-1)
    probability = sum(math.exp(sum(float(scores[0, t, s]) for t, s in enumerate(path))) for path in paths([1, 2], 5, 0))
    batch = Batch(torch.zeros(1, 20, 8), torch.tensor([20]), torch.tensor([[1, 2]]), torch.tensor([2]))
    assert float(ctc_loss(scores, torch.tensor([5]), batch, blank=0)) == pytest.approx(-math.log(probability) / 2, rel=1e-5)


def test_labels_as_heard_are_drawn_from_what_the_head_hears_there() -> None:
    torch.manual_seed(0)
    labels, positions = torch.full((50, 40), 3), torch.arange(40).repeat(50, 1)
    hears = torch.tensor([0.6, 0.0, 0.1, 0.2, 0.1])  # blank first
    scores = hears.log().expand(50, 40, 5)
    assert torch.equal(as_heard(labels, scores, positions, 0, 0.0), labels)
    frequency = as_heard(labels, scores, positions, 0, 1.0).flatten().bincount(minlength=5) / labels.numel()
    torch.testing.assert_close(frequency, torch.tensor([0.0, 0.0, 0.25, 0.5, 0.25]), atol=0.05, rtol=0)
    changed = (as_heard(labels, scores, positions, 0, 0.4) != labels).float().mean()
    assert abs(float(changed) - 0.4 * 0.5) < 0.05


def test_labels_are_heard_at_their_own_positions() -> None:
    scores = torch.full((1, 6, 4), -30.0)
    scores[0, 2, 3] = scores[0, 5, 1] = 0.0
    heard = as_heard(torch.tensor([[2, 2]]), scores, torch.tensor([[2, 5]]), 0, 1.0)
    assert heard.tolist() == [[3, 1]]


def test_disagreement_is_the_divergence_of_each_view_from_the_other() -> None:
    torch.manual_seed(5)
    logits = torch.randn(4, 3, 5)  # two utterances, and the same again
    scores, lengths = logits.log_softmax(-1), torch.tensor([3, 2, 3, 2])
    expected = 0.0
    for row, length in enumerate(lengths.tolist()):
        for here, there in zip(scores[row, :length].tolist(), scores[(row + 2) % 4, :length].tolist(), strict=True):
            expected += sum(math.exp(b) * (b - a) for a, b in zip(here, there, strict=True))
    assert float(disagreement(scores, lengths)) == pytest.approx(expected, rel=1e-5)
    assert float(disagreement(scores[:2].repeat(2, 1, 1), lengths)) == pytest.approx(0.0, abs=1e-5)


def test_a_step_against_disagreement_brings_the_views_together() -> None:
    torch.manual_seed(6)
    logits, lengths = torch.randn(2, 4, 5, requires_grad=True), torch.tensor([4, 4])
    before = disagreement(logits.log_softmax(-1), lengths)
    before.backward()
    assert logits.grad is not None
    assert logits.grad.abs().amin(dim=(1, 2)).gt(0).all()  # both views learn
    after = disagreement((logits - 0.1 * logits.grad).log_softmax(-1), lengths)
    assert float(after.detach()) < float(before.detach())
