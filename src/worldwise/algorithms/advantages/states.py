"""Which turns were taken in the same state: GiGPO's anchor groups where texts differ a little."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray

from worldwise.algorithms.advantages.groups import Int, check_lengths


def similar_states(states: Sequence[str], groups: Sequence[Hashable] | NDArray[np.int64], threshold: float) -> Int:
    """Greedy clusters of texts within each group, as in the public GiGPO release's similarity mode.

    A text joins the first cluster of its group whose first member has a `difflib` ratio of at least
    `threshold` with it (Ratcliff/Obershelp over characters, automatic junk on, as there); otherwise it
    opens one. The result depends on the order of the rows. The paper calls this the longest matching
    subsequence (arXiv:2505.10978, appendix); it is not one.

    Args:
        states: [N] texts.
        groups: [N] keys of the task groups.
        threshold: 0..1; the release's search runs use 0.9.

    Returns:
        int64 [N], number of the cluster: give it to `gigpo` as `states`.

    Raises:
        ValueError: lengths differ, or `threshold` is outside [0, 1].
    """
    check_lengths(states=states, groups=groups)
    if not 0.0 <= threshold <= 1.0:
        raise ValueError(f"threshold is {threshold}: allowed are values from 0 to 1")
    clusters: dict[Hashable, list[tuple[str, int]]] = {}
    numbers = np.empty(len(states), dtype=np.int64)
    count = 0
    for row, (state, group) in enumerate(zip(states, groups, strict=True)):
        members = clusters.setdefault(group, [])
        for first, number in members:
            if SequenceMatcher(None, state, first).ratio() >= threshold:
                numbers[row] = number
                break
        else:
            members.append((state, count))
            numbers[row] = count
            count += 1
    return numbers
