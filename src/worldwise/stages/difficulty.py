"""The arithmetic of difficulty subsampling (RWML, arXiv 2602.05842).

A transition is easy where the auxiliary model's pass rate exceeds `tau_easy`; a try passes where its
distance 1 - cos lies below `tau_d`. Easy ones are kept with a small probability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
from numpy.typing import NDArray

from worldwise.algorithms.rewards.embedding import MAX_DISTANCE, binary_reward
from worldwise.config import FrozenConfig, derive_seed

MIN_TAU_D = 0.001
"""The smallest threshold that calibration proposes: below it only exact texts pass, whatever its value."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A threshold and what it does.

    Attributes:
        tau_d: the distance threshold, in (0, 2].
        tau_easy: the pass rate above which a transition is easy, in [0, 1).
        easy_share: share of transitions that are easy under both, in [0, 1].
        in_band: the easy share lies in the wanted band.
    """

    tau_d: float
    tau_easy: float
    easy_share: float
    in_band: bool


def tau_train_default(tau_data: float) -> float:
    """The training threshold the authors derive from the data threshold: plus 0.15, to a multiple of 0.2.

    Halves round up, so that their own pairs come out: 0.10 -> 0.2 and 0.15 -> 0.4. At least 0.2, at most 2.
    """
    steps = ((Decimal(repr(tau_data)) + Decimal("0.15")) / Decimal("0.2")).quantize(Decimal(1), ROUND_HALF_UP)
    return float(min(max(steps, Decimal(1)) * Decimal("0.2"), Decimal(2)))


def pass_rates(distances: NDArray[np.float64], tau_d: float) -> NDArray[np.float64]:
    """Share of tries with a distance below `tau_d`.

    Args:
        distances: float64 [N, K], 1 - cos in [0, 2]; `inf` for a try without a prediction.
        tau_d: threshold in (0, 2].

    Returns:
        float64 [N] in [0, 1].
    """
    return np.asarray(binary_reward(distances, tau_d).mean(axis=1), dtype=np.float64)


def is_easy(rates: NDArray[np.float64], tau_easy: float) -> NDArray[np.bool_]:
    """Which pass rates exceed `tau_easy`.

    The paper prints ">=" and tau_easy = 0, which would make everything easy; ">" (solved at least once)
    gives the share of about 30 % that it reports.
    """
    return np.asarray(rates > tau_easy + 1e-9, dtype=np.bool_)


def calibrate(
    distances: NDArray[np.float64],
    target: float,
    band: tuple[float, float],
    tau_easy: float | None = 0.0,
) -> Calibration:
    """The thresholds whose easy share comes closest to `target`.

    A transition is easy where its m-th smallest distance lies below `tau_d`, m being the fewest passes that
    exceed `tau_easy`; so the candidates for `tau_d` are the gaps between those critical distances.
    Where many predictions are exactly right no `tau_d` is small enough; with `tau_easy=None` the pass
    rate that is demanded then rises in steps of 1/K until the share falls into the band.

    Args:
        distances: float64 [N, K], as in `pass_rates`.
        target: wanted easy share.
        band: easy shares that count as reached, (low, high).
        tau_easy: the pass rate to exceed, or None to choose it as well.

    Raises:
        ValueError: no transitions or no tries.
    """
    if distances.ndim != 2 or 0 in distances.shape:
        raise ValueError(
            f"distances has shape {distances.shape}: calibration needs at least one transition and one try"
        )
    tries = distances.shape[1]
    ordered = np.sort(distances, axis=1)
    needed = range(1, tries + 1) if tau_easy is None else (_passes_needed(tau_easy, tries),)
    best: Calibration | None = None
    for passes in needed:
        level = (passes - 1) / tries if tau_easy is None else tau_easy
        tau_d, share = _closest(ordered[:, passes - 1], target)
        found = Calibration(tau_d, level, share, band[0] <= share <= band[1])
        if best is None or abs(share - target) < abs(best.easy_share - target) - 1e-12:
            best = found
        if found.in_band:
            return found
    assert best is not None
    return best


def _passes_needed(tau_easy: float, tries: int) -> int:
    return min(int(np.floor(tau_easy * tries + 1e-9)) + 1, tries)


def _closest(critical: NDArray[np.float64], target: float) -> tuple[float, float]:
    """The threshold between critical distances whose share below it is closest to `target`."""
    values = np.unique(critical[critical <= MAX_DISTANCE])
    inner = (values[:-1] + values[1:]) / 2
    candidates = np.concatenate([[MIN_TAU_D], inner, [MAX_DISTANCE]])
    candidates = np.unique(np.round(np.clip(candidates, MIN_TAU_D, MAX_DISTANCE), 6))
    shares = (critical[None, :] < candidates[:, None]).mean(axis=1)
    index = int(np.argmin(np.abs(shares - target)))
    return float(candidates[index]), float(shares[index])


def most_mixed(distances: NDArray[np.float64]) -> float:
    """The threshold under which most groups hold both passing and failing tries.

    Args:
        distances: float64 [N, G], as in `pass_rates`.

    Returns:
        The midpoint of the widest range of thresholds with the largest number of mixed groups, in (0, 2].
    """
    low, high = distances.min(axis=1), distances.max(axis=1)
    edges = np.unique(np.concatenate([[0.0], np.clip(distances[distances <= MAX_DISTANCE], 0.0, None), [MAX_DISTANCE]]))
    middles = np.maximum((edges[:-1] + edges[1:]) / 2, MIN_TAU_D)
    mixed = ((low[None, :] < middles[:, None]) & (middles[:, None] <= high[None, :])).sum(axis=1)
    best = np.flatnonzero(mixed == mixed.max())
    widest = best[np.argmax((edges[1:] - edges[:-1])[best])]
    return round(float(middles[widest]), 6)


def keep_mask(
    transition_ids: Sequence[str], easy: NDArray[np.bool_], probability: float, seed: int
) -> NDArray[np.bool_]:
    """Which transitions stay: all hard ones, and easy ones each with `probability`.

    Every draw depends on (seed, transition id) alone, so neither order nor company changes it.
    """
    draws = np.asarray([uniform(seed, "keep_easy", transition_id) for transition_id in transition_ids])
    return np.asarray(~easy | (draws < probability), dtype=np.bool_)


def uniform(*parts: int | str) -> float:
    """A number in [0, 1) that derives from named parts."""
    return derive_seed(*parts) / 2.0**63


def split_tasks(task_ids: Sequence[str], share: float, seed: int) -> frozenset[str]:
    """The tasks of the smaller part of a split by task.

    Args:
        task_ids: task of every transition, repeats allowed.
        share: wanted share of the tasks, in (0, 1); at least one task goes to each side.
        seed: seed of the choice; it does not depend on the order of `task_ids`.

    Raises:
        ValueError: fewer than two tasks.
    """
    tasks = sorted(set(task_ids), key=lambda task: (derive_seed(seed, "split_tasks", task), task))
    if len(tasks) < 2:
        raise ValueError(f"a split by task needs at least 2 tasks, got {len(tasks)}: collect more tasks")
    count = min(max(round(share * len(tasks)), 1), len(tasks) - 1)
    return frozenset(tasks[:count])


def share_by_kind(kinds: Sequence[str], flags: NDArray[np.bool_]) -> Mapping[str, tuple[int, int]]:
    """Per kind of transition (flagged, all), sorted by kind."""
    counts: dict[str, list[int]] = {}
    for kind, flag in zip(kinds, flags, strict=True):
        entry = counts.setdefault(kind, [0, 0])
        entry[0] += int(flag)
        entry[1] += 1
    return {kind: (entry[0], entry[1]) for kind, entry in sorted(counts.items())}


class DifficultyReport(FrozenConfig):
    """What difficulty subsampling did.

    Attributes:
        tasks_main, tasks_auxiliary: tasks on each side of the split.
        transitions_main, transitions_auxiliary: their transitions.
        tries: predictions per transition.
        tau_d, tau_easy: the thresholds in force.
        easy_share: share of the main transitions that were easy, in [0, 1].
        in_band: the easy share lies in the wanted band.
        mean_pass_rate: mean share of tries that passed, in [0, 1].
        exact_rate: mean share of tries that were the exact text, in [0, 1].
        parse_rate: mean share of tries that held a prediction at all, in [0, 1].
        kept, kept_easy: transitions that stay, and the easy ones among them.
        easy_by_kind: kind of transition -> (easy, all).
    """

    tasks_main: int
    tasks_auxiliary: int
    transitions_main: int
    transitions_auxiliary: int
    tries: int
    tau_d: float
    tau_easy: float
    easy_share: float
    in_band: bool
    mean_pass_rate: float
    exact_rate: float
    parse_rate: float
    kept: int
    kept_easy: int
    easy_by_kind: dict[str, tuple[int, int]]
