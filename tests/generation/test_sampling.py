"""Hand-computed distributions, restrictions and draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from worldwise.generation.protocol import Request, Sampling
from worldwise.generation.response import Response
from worldwise.generation.sampling import draw, processed_logprobs, uniforms
from worldwise.generation.tries import build_trie

PROBS = torch.tensor([[0.5, 0.2, 0.25, 0.05]])
LOGITS = PROBS.log()


def probs(sampling: Sampling, choices: list[list[int] | None] | None = None) -> list[float]:
    return processed_logprobs(LOGITS, sampling, choices).exp()[0].tolist()


def test_plain_distribution_is_the_softmax() -> None:
    assert probs(Sampling()) == pytest.approx([0.5, 0.2, 0.25, 0.05])


def test_temperature_sharpens() -> None:
    squares = np.array([0.25, 0.04, 0.0625, 0.0025])
    assert probs(Sampling(temperature=0.5)) == pytest.approx((squares / squares.sum()).tolist(), rel=1e-5)


def test_temperature_zero_is_a_point_on_the_first_best() -> None:
    drawn = draw(torch.tensor([[1.0, 3.0, 3.0]]), torch.tensor([0.99]).double(), Sampling(temperature=0.0))
    assert (int(drawn.tokens), float(drawn.logprobs), float(drawn.entropies)) == (1, 0.0, 0.0)


def test_nucleus_keeps_the_token_that_crosses() -> None:
    # 0.5, then 0.75 >= 0.7: two tokens
    assert probs(Sampling(top_p=0.7)) == pytest.approx([2 / 3, 0.0, 1 / 3, 0.0])
    assert probs(Sampling(top_p=0.5)) == pytest.approx([1.0, 0.0, 0.0, 0.0])


def test_min_p_is_relative_to_the_best() -> None:
    assert probs(Sampling(min_p=0.45)) == pytest.approx([2 / 3, 0.0, 1 / 3, 0.0])


def test_restriction_renormalises_what_is_allowed() -> None:
    assert probs(Sampling(), [[1, 3]]) == pytest.approx([0.0, 0.8, 0.0, 0.2])
    assert probs(Sampling(temperature=0.0), [[3, 1]]) == [0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("number", "token"), [(0.0, 0), (0.4999, 0), (0.5001, 1), (0.6999, 1), (0.7001, 2), (0.96, 3), (1 - 2**-53, 3)]
)
def test_draw_is_the_inverse_of_the_cumulative_distribution(number: float, token: int) -> None:
    drawn = draw(LOGITS, torch.tensor([number], dtype=torch.float64), Sampling())
    assert int(drawn.tokens) == token
    assert float(drawn.logprobs) == pytest.approx(math.log(float(PROBS[0, token])), abs=1e-6)
    assert float(drawn.entropies) == pytest.approx(-sum(p * math.log(p) for p in PROBS[0].tolist()), abs=1e-6)


@pytest.mark.parametrize("number", [0.0, 0.5, 1 - 2**-53])
def test_a_token_of_probability_zero_never_comes(number: float) -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]])
    drawn = draw(logits, torch.tensor([number], dtype=torch.float64), Sampling())
    assert int(drawn.tokens) in (1, 3)
    assert float(drawn.entropies) == pytest.approx(math.log(2), abs=1e-6)


def test_draws_follow_the_distribution() -> None:
    count = 4000
    numbers = torch.from_numpy(uniforms(7, count))
    drawn = draw(LOGITS.expand(count, -1), numbers, Sampling())
    shares = torch.bincount(drawn.tokens, minlength=4) / count
    # 4 standard errors of the largest share
    assert torch.allclose(shares, PROBS[0], atol=4 * 0.5 / math.sqrt(count))


def test_broken_weights_are_named() -> None:
    with pytest.raises(FloatingPointError, match="NaN"):
        draw(torch.tensor([[0.0, torch.nan]]), torch.tensor([0.5]).double(), Sampling())


def test_streams_are_own_and_begin_alike_whatever_their_length() -> None:
    assert uniforms(3, 4).tolist() == uniforms(3, 9)[:4].tolist()
    assert uniforms(3, 4).tolist() != uniforms(4, 4).tolist()
    assert uniforms(2**63 - 1, 1).shape == (1,)


def test_trie_shares_beginnings() -> None:
    trie = build_trie([[5, 6, 1], [5, 7, 1], [5, 6, 1]])
    assert [sorted(node) for node in trie.children] == [[5], [6, 7], [1], [], [1], []]


@pytest.mark.parametrize("sequences", [[], [[]], [[1, 2], [1]], [[1], [1, 2]]])
def test_trie_refuses_what_has_no_clear_end(sequences: list[list[int]]) -> None:
    with pytest.raises(ValueError, match=r"token sequence|beginning of another"):
        build_trie(sequences)


def test_forced_tokens_are_certain_and_end_with_the_trie() -> None:
    trie = build_trie([[5, 6, 8, 1], [5, 7, 1]])
    response = Response(Request(0, [3], 1, allowed=trie), Sampling(), frozenset({1}), room=100)
    assert response.take_forced() == [5]
    assert response.choices == [6, 7]
    response.take(6, -0.5, 0.6)
    assert response.take_forced() == [8, 1]
    completion = response.completion()
    assert completion.token_ids.tolist() == [5, 6, 8, 1]
    assert completion.logprobs.tolist() == [0.0, -0.5, 0.0, 0.0]
    assert completion.entropies.tolist() == pytest.approx([0.0, 0.6, 0.0, 0.0])
    assert completion.finish == "stop"


@pytest.mark.parametrize(
    ("tokens", "room", "finish"),
    [([4, 9], 100, "stop"), ([4, 8], 100, "stop"), ([4, 5, 6], 100, "length"), ([4, 5], 2, "context")],
)
def test_every_reason_to_end_is_told_apart(tokens: list[int], room: int, finish: str) -> None:
    response = Response(Request(0, [3], 1), Sampling(max_tokens=3), frozenset({8, 9}), room)
    for token in tokens:
        assert response.finish is None
        response.take(token, 0.0, 0.0)
    assert response.finish == finish
