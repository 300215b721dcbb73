"""Rows and micro-batches: which tokens go through the model together, and which of them are scored.

A micro-batch holds rows of similar length, right-padded to a multiple of 32 (few distinct shapes keep kernel
caches small). Padding is never scored and no real row is ever duplicated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from worldwise.episodes.sequences import Allowed, TrainingSequence
from worldwise.training.errors import LearnerError
from worldwise.training.ranks import ALONE, Ranks

PAD_MULTIPLE = 32

Int = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Row:
    """A sequence made ready for the model: only what its scored tokens depend on.

    Attributes:
        sequence: where it comes from.
        input_ids: int64 [L], tokens fed to the model (nothing after the last scored token's predecessor).
        position_ids: int64 [L].
        branches: int32 [L] or None, as in `TrainingSequence`.
        scored: int64 [N], ascending positions in `sequence.token_ids` whose probability is wanted.
        previous: int64 [N], position in `input_ids` that predicts each of them.
        targets: int64 [N], the tokens whose probability is wanted.
        observed: bool [N], those that were observed, not sampled; None = none of them.
        temperature, allowed: as in `TrainingSequence`, or 1 and None where the tokens were not sampled. Observed ones
            have a temperature of 1.
    """

    sequence: TrainingSequence
    input_ids: Int
    position_ids: Int
    branches: NDArray[np.int32] | None
    scored: Int
    previous: Int
    targets: Int
    observed: NDArray[np.bool_] | None
    temperature: float
    allowed: Allowed | None

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True, slots=True)
class Restriction:
    """Scored tokens that were drawn from a restricted vocabulary.

    Attributes:
        which: int64 [R], their places among the micro-batch's scored tokens.
        ids: int64 [R, A], allowed token ids, padded by repeating the first.
        valid: bool [R, A], False at padding.
        targets: int64 [R], place of the token itself among its allowed ids.
    """

    which: torch.Tensor
    ids: torch.Tensor
    valid: torch.Tensor
    targets: torch.Tensor

    def part(self, start: int, stop: int) -> Restriction | None:
        """The restrictions of scored tokens [start, stop), counted from `start`; None if there are none."""
        inside = (self.which >= start) & (self.which < stop)
        if not bool(inside.any()):
            return None
        return Restriction(self.which[inside] - start, self.ids[inside], self.valid[inside], self.targets[inside])


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Tensors of one forward pass: B rows, padded length L, N scored tokens.

    Attributes:
        input_ids, position_ids: int64 [B, L].
        attention: bool [B, 1, L, L], True where a token may look; None means plain causal attention.
        where: int64 [N], flat positions (row * L + column) whose hidden states predict the scored tokens.
        targets: int64 [N], the scored tokens.
        temperatures: float32 [N].
        restriction: None where nothing was restricted.
        places: int64 [N], place of each scored token in the flat arrays of all rows given to `micro_batches`.
        tokens: real (unpadded) input tokens.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    attention: torch.Tensor | None
    where: torch.Tensor
    targets: torch.Tensor
    temperatures: torch.Tensor
    restriction: Restriction | None
    places: Int
    tokens: int


def make_row(sequence: TrainingSequence, scored: Int, *, sampled: bool = True, observed: Int | None = None) -> Row:
    """Prepare a sequence for the scoring of some of its tokens.

    Args:
        sequence: the sequence.
        scored: int64 [N], ascending positions in it; position 0 has no predecessor and cannot be scored.
        sampled: score under the distribution the tokens were sampled from (temperature, allowed ids);
            False scores under the model's plain distribution.
        observed: int64 [M], ascending positions of observation tokens that are scored as well, under the model's plain
            distribution; None = none.

    Raises:
        LearnerError: position 0 is scored; `branches` is not a prefix of zeros followed by rising branch
            numbers; the temperature is not positive.
    """
    if sampled and len(scored) and not sequence.temperature > 0.0:
        raise LearnerError(
            f"sequence {sequence.sequence_id} has temperature {sequence.temperature}: greedy play has no "
            "log-probabilities to train on; sample with a temperature > 0"
        )
    temperature, allowed = (sequence.temperature, sequence.allowed) if sampled else (1.0, None)
    if len(scored) and scored[0] == 0:
        raise LearnerError(
            f"sequence {sequence.sequence_id}: token 0 cannot be scored, nothing precedes it; "
            "start the sequence with a context token"
        )
    ids = sequence.token_ids.astype(np.int64)
    targets, marked = ids, None
    if observed is not None and len(observed):
        if sequence.world_targets is not None:
            targets = ids.copy()
            targets[observed] = sequence.world_targets[observed]
        scored = np.union1d(scored, observed)
        marked = np.isin(scored, observed)
    wanted = targets[scored]
    if sequence.branches is None:
        length = int(scored[-1]) if len(scored) else 0
        column = np.arange(length, dtype=np.int64)
        return Row(sequence, ids[:length], column, None, scored, scored - 1, wanted, marked, temperature, allowed)
    branches = sequence.branches
    prefix = int((branches == 0).sum())
    if prefix == 0 or (np.diff(branches) < 0).any() or branches[0] != 0:
        raise LearnerError(
            f"sequence {sequence.sequence_id}: branches must be zeros for the prefix (at least one token), "
            "then non-decreasing branch numbers"
        )
    starts = np.flatnonzero(np.diff(branches, prepend=-1))
    start_of = np.repeat(starts, np.diff(np.append(starts, len(branches))))
    column = np.arange(len(branches), dtype=np.int64)
    positions = np.where(branches == 0, column, prefix + column - start_of)
    previous = np.where((column == start_of) & (branches > 0), prefix - 1, column - 1)[scored]
    length = int(previous.max()) + 1 if len(scored) else 0
    places = (positions[:length], branches[:length], scored, previous)
    return Row(sequence, ids[:length], *places, wanted, marked, temperature, allowed)


def padded(length: int) -> int:
    """`length` rounded up to a multiple of `PAD_MULTIPLE`."""
    return -(-length // PAD_MULTIPLE) * PAD_MULTIPLE


def plan_micro_batches(rows: Sequence[Row], budget: int) -> list[list[int]]:
    """Indices of the rows of each micro-batch, at most `budget` padded tokens each (single longer rows
    excepted).

    Rows are taken from longest to shortest (the largest allocation comes first); tree rows, which need an
    attention mask, stay among themselves. Rows without scored tokens are left out. The plan depends only on
    the rows' order and lengths.
    """
    batches: list[list[int]] = []
    for tree in (False, True):
        chosen = [i for i, row in enumerate(rows) if len(row.scored) and (row.branches is not None) == tree]
        chosen.sort(key=lambda i: -len(rows[i]))
        current: list[int] = []
        for index in chosen:
            if current and (len(current) + 1) * padded(len(rows[current[0]])) > budget:
                batches.append(current)
                current = []
            current.append(index)
        if current:
            batches.append(current)
    return batches


def micro_batches(rows: Sequence[Row], budget: int, device: torch.device, ranks: Ranks = ALONE) -> list[MicroBatch]:
    """All rows with scored tokens, in micro-batches of at most `budget` padded tokens (see the plan): those of this
    rank, where several share them.

    `MicroBatch.places` counts through the scored tokens of all `rows` in the order given.
    """
    ends = np.cumsum([len(row.scored) for row in rows])
    return [
        _collate([rows[i] for i in plan], [int(ends[i]) - len(rows[i].scored) for i in plan], device)
        for plan in ranks.share(plan_micro_batches(rows, budget))
    ]


def _collate(rows: Sequence[Row], offsets: Sequence[int], device: torch.device) -> MicroBatch:
    length = padded(max(len(row) for row in rows))
    ids = np.zeros((len(rows), length), dtype=np.int64)
    positions = np.tile(np.arange(length, dtype=np.int64), (len(rows), 1))
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row.input_ids
        positions[i, : len(row)] = row.position_ids
    targets = np.concatenate([row.targets for row in rows])
    temperatures = np.repeat([row.temperature for row in rows], [len(row.scored) for row in rows])
    if any(row.observed is not None for row in rows):
        temperatures[concatenate_marks(rows)] = 1.0
    tree = rows[0].branches is not None
    return MicroBatch(
        input_ids=torch.from_numpy(ids).to(device),
        position_ids=torch.from_numpy(positions if tree else positions[:1]).to(device),
        attention=_tree_attention(rows, length).to(device) if tree else None,
        where=torch.from_numpy(np.concatenate([i * length + r.previous for i, r in enumerate(rows)])).to(device),
        targets=torch.from_numpy(targets).to(device),
        temperatures=torch.from_numpy(temperatures.astype(np.float32)).to(device),
        restriction=_restriction(rows, targets, device),
        places=np.concatenate([o + np.arange(len(r.scored)) for o, r in zip(offsets, rows, strict=True)]),
        tokens=sum(len(row) for row in rows),
    )


def concatenate_marks(rows: Sequence[Row]) -> NDArray[np.bool_]:
    """bool [N], flat over the rows' scored tokens: those that were observed."""
    marks = [np.zeros(len(row.scored), dtype=bool) if row.observed is None else row.observed for row in rows]
    return np.concatenate(marks) if marks else np.zeros(0, dtype=bool)


def _tree_attention(rows: Sequence[Row], length: int) -> torch.Tensor:
    """bool [B, 1, L, L]: i sees j <= i where j is in the prefix or in the branch of i; padding sees padding."""
    branches = np.full((len(rows), length), -1, dtype=np.int32)
    for i, row in enumerate(rows):
        if row.branches is not None:
            branches[i, : len(row)] = row.branches
    known = torch.from_numpy(branches)
    own = known[:, :, None] == known[:, None, :]
    prefix = (known == 0)[:, None, :] & (known >= 0)[:, :, None]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    return ((own | prefix) & causal)[:, None]


def _restriction(rows: Sequence[Row], targets: Int, device: torch.device) -> Restriction | None:
    which: list[int] = []
    lists: list[NDArray[np.int32]] = []
    place = 0
    for row in rows:
        allowed = row.allowed
        for position in row.scored:
            ids = None if allowed is None else allowed[position]
            if ids is not None:
                which.append(place)
                lists.append(ids)
            place += 1
    if not which:
        return None
    width = max(len(ids) for ids in lists)
    table = np.zeros((len(lists), width), dtype=np.int64)
    valid = np.zeros((len(lists), width), dtype=np.bool_)
    for i, ids in enumerate(lists):
        table[i] = ids[0] if len(ids) else 0
        table[i, : len(ids)] = ids
        valid[i, : len(ids)] = True
    hits = (table == targets[which][:, None]) & valid
    if not hits.any(1).all():
        bad = int(np.flatnonzero(~hits.any(1))[0])
        raise LearnerError(
            f"token {int(targets[which[bad]])} was sampled but is not among its allowed ids "
            f"{lists[bad].tolist()}: record the ids that restricted decoding really allowed"
        )
    return Restriction(
        torch.tensor(which, device=device),
        torch.from_numpy(table).to(device),
        torch.from_numpy(valid).to(device),
        torch.from_numpy(hits.argmax(1)).to(device),
    )
