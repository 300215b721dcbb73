"""Weights in shared memory: one block, ties kept, changes seen, the same numbers."""

from __future__ import annotations

import torch

from worldwise.generation.shared_weights import share_weights, weight_bytes
from worldwise.generation.tiny import tiny_model


def test_the_other_model_reads_what_the_first_one_is_trained_to() -> None:
    torch.set_num_threads(1)
    model = tiny_model("qwen3", layers=1)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    ids = torch.tensor([[1, 2, 3]])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with torch.no_grad():
        before = model(input_ids=ids).logits
    shared = share_weights(model)
    other = shared.model()
    assert len(shared.blocks) == 1
    assert shared.blocks[0].is_shared()
    assert other.get_output_embeddings().weight is other.get_input_embeddings().weight
    assert torch.equal(other(input_ids=ids).logits, before)
    model(input_ids=ids).logits.square().mean().backward()
    optimizer.step()
    with torch.no_grad():
        after = model(input_ids=ids).logits
    assert not torch.allclose(after, before)
    assert torch.equal(other(input_ids=ids).logits, after)


def test_sharing_twice_moves_nothing() -> None:
    model = tiny_model("llama", layers=1)
    first = share_weights(model)
    places = [parameter.data_ptr() for parameter in model.parameters()]
    second = share_weights(model)
    assert [parameter.data_ptr() for parameter in model.parameters()] == places
    assert second.places == first.places
    assert second.blocks[0].data_ptr() == first.blocks[0].data_ptr()
    assert second.blocks[0].numel() == first.blocks[0].numel()


def test_types_lie_apart_and_parameters_at_cache_lines() -> None:
    model = tiny_model("qwen2", layers=1)
    model.get_submodule("model.norm").to(torch.bfloat16)
    shared = share_weights(model)
    assert sorted(str(block.dtype) for block in shared.blocks) == ["torch.bfloat16", "torch.float32"]
    assert all(parameter.data_ptr() % 64 == 0 for parameter in model.parameters())
    assert weight_bytes(model) == sum(p.numel() * p.element_size() for p in shared.model().parameters())
