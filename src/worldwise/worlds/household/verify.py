"""Says how the official games are obtained, and checks that a copy of them is complete and whole."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from worldwise.worlds.contract import WorldError
from worldwise.worlds.household.compiled import CompiledGame
from worldwise.worlds.household.game import TASK_TYPES, GameFileError
from worldwise.worlds.household.official import (
    DATA_VARIABLE,
    OFFICIAL_SPLITS,
    GameSource,
    OfficialGames,
    task_type_of,
)
from worldwise.worlds.household.pddl import build_game, open_game_file
from worldwise.worlds.household.state import HouseholdState

EXPECTED_COUNTS: dict[str, dict[str, int]] = {
    split: dict(zip(TASK_TYPES, counts, strict=True))
    for split, counts in {
        "train": (790, 308, 650, 459, 533, 813),
        "valid_seen": (35, 13, 27, 16, 25, 24),
        "valid_unseen": (24, 18, 31, 23, 21, 17),
        "valid_train": (46, 19, 37, 25, 28, 45),
    }.items()
}
"""Games a split and a task type, as ALFWorld's authors publish them (4,027 in all)."""

KNOWN_CONTENT = {
    "train": "83a6e791af0f3dde407198154f59b2e52306328ce8574cd103b9f6ce1ff7118c",
    "valid_seen": "1243f5d953c752e755028cbec04e94ce55e8723a70663047cdd5a4913b59cfa6",
    "valid_unseen": "d5e88f15f7566fa037208549d327ed209509ab3aee1b6c7eb93f2b995fc876ab",
    "valid_train": "f32f8b26ddb42fd32b9fbc32c22f6a5cba77ef558243338d62c7d39c9b98902b",
}
"""`content_digest` of the copy that this engine was checked against, state by state."""

SHOWN_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class SplitCheck:
    """What was found of one split.

    Attributes:
        split: its name.
        path: the folder or archive.
        checksum: `ok`, `wrong` (differs from SHA256SUMS), or `unknown`: nothing is listed for it, and the games are not
            byte for byte those of `KNOWN_CONTENT`. That is another release of them, or somebody has changed files.
        counts: solvable games a task type.
        damaged: messages of the files that cannot be read.
        unwon: games whose walkthrough does not win.
    """

    split: str
    path: str
    checksum: str
    counts: dict[str, int]
    damaged: tuple[str, ...]
    unwon: tuple[str, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong, in words; empty if nothing is."""
        found = []
        if self.checksum == "wrong":
            found.append(f"{self.split}: {self.path} differs from its SHA256SUMS entry; fetch it again")
        for task_type, expected in EXPECTED_COUNTS[self.split].items():
            count = self.counts.get(task_type, 0)
            if count != expected:
                found.append(f"{self.split}: {count} games of {task_type}, expected {expected}")
        found += [f"{self.split}: {message}" for message in self.damaged]
        found += [f"{self.split}: the walkthrough of {game} does not win" for game in self.unwon]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was found in a folder of official games.

    Attributes:
        folder: where.
        splits: one entry a split that is there.
        missing: names of the absent splits.
    """

    folder: str
    splits: tuple[SplitCheck, ...]
    missing: tuple[str, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong, in words; empty if nothing is."""
        found = [f"{split}: not in {self.folder}" for split in self.missing]
        return (*found, *(problem for check in self.splits for problem in check.problems))

    @property
    def ok(self) -> bool:
        """Every split is there, complete and whole."""
        return not self.problems

    def text(self) -> str:
        """The report as lines for a terminal."""
        lines = [f"official games in {self.folder}"]
        for check in self.splits:
            total = sum(check.counts.values())
            expected = sum(EXPECTED_COUNTS[check.split].values())
            lines.append(
                f"  {check.split:<13} {total:>5} of {expected:>5} games, checksum {check.checksum}: {check.path}"
            )
        unknown = [check.split for check in self.splits if check.checksum == "unknown"]
        if unknown:
            lines.append(
                f"  note: the files of {', '.join(unknown)} are not byte for byte those that this engine was checked "
                "against: another release of the games, or changed files"
            )
        problems = self.problems
        lines += [f"  problem: {problem}" for problem in problems[:SHOWN_PROBLEMS]]
        if len(problems) > SHOWN_PROBLEMS:
            lines.append(f"  and {len(problems) - SHOWN_PROBLEMS} more problems")
        if not problems:
            lines.append("  all games are there, can be read, and are won by their walkthroughs")
        return "\n".join(lines)


def how_to_obtain() -> str:
    """How to get the official games and where to put them."""
    return f"""The official ALFWorld games are not part of Worldwise. To get them:
  1. From the releases of github.com/alfworld/alfworld fetch json_2.1.2_tw-pddl.zip (release 0.4.0, 36.5 MB)
     or json_2.1.3_tw-pddl.zip (release 0.4.2); `alfworld-download` of the alfworld package fetches it too.
  2. Unpack it into a folder named alfworld, for example /data/alfworld, so that
     /data/alfworld/json_2.1.1/valid_seen/<task>/<trial>/game.tw-pddl exists.
     Archives <split>.tar.xz with the same content, placed in that folder, do as well.
  3. Set {DATA_VARIABLE}=/data and run this command again to check the copy."""


def verify_official(folder: str | Path | None = None, *, splits: tuple[str, ...] = OFFICIAL_SPLITS) -> VerifyReport:
    """Check the official games: counts, checksums, that every file can be read and its walkthrough wins.

    Takes about 3 ms a game (12 s for all 4,027).

    Args:
        folder: where they are; None: `WORLDWISE_DATA` (see `official.data_folder`).
        splits: which splits to check.

    Raises:
        WorldError: no games are there at all; the message says how to get them.
    """
    unknown = [split for split in splits if split not in OFFICIAL_SPLITS]
    if unknown:
        raise WorldError(f"splits has {unknown[0]!r}; choose of {', '.join(OFFICIAL_SPLITS)}")
    games = OfficialGames(folder)
    present = [split for split in splits if split in games.splits]
    checks = tuple(_check_split(split, games.source(split)) for split in present)
    missing = tuple(split for split in splits if split not in present)
    return VerifyReport(str(games.folder), checks, missing)


def _check_split(split: str, source: GameSource) -> SplitCheck:
    counts: Counter[str] = Counter()
    damaged, unwon = [], []
    digests: dict[str, str] = {}
    try:
        for name, data in source.raw():
            try:
                file = open_game_file(data, source.describe(name))
                if not file.solvable:
                    continue
                digests[name] = hashlib.sha256(data).hexdigest()
                game = build_game(file, name, source.describe(name))
                if game.goal.task_type != task_type_of(name):
                    raise GameFileError(f"{name}: its goal is that of {game.goal.task_type}")
                if game.walkthrough is not None and not _wins(CompiledGame(game), game.walkthrough):
                    unwon.append(name)
                counts[game.goal.task_type] += 1
            except (GameFileError, WorldError) as error:
                damaged.append(str(error))
    except GameFileError as error:
        damaged.append(str(error))
    known = content_digest(digests) == KNOWN_CONTENT[split]
    checksum = _checksum(source.path()) or ("ok" if known else "unknown")
    return SplitCheck(split, str(source.path()), checksum, dict(counts), tuple(damaged), tuple(unwon))


def content_digest(digests: Mapping[str, str]) -> str:
    """SHA-256 of a split's solvable games, however they are packed.

    Args:
        digests: `<split>/<task>/<trial>` -> SHA-256 of its game file.
    """
    lines = "".join(f"{name} {digests[name]}\n" for name in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()


def _wins(rules: CompiledGame, walkthrough: tuple[str, ...]) -> bool:
    state = HouseholdState(rules)
    for command in walkthrough:
        state.play(command)
        if not state.accepted:
            return False
    return state.won


def _checksum(path: Path) -> str | None:
    """`ok` or `wrong`; None where no SHA256SUMS beside an archive lists it."""
    sums = path.parent / "SHA256SUMS"
    if not path.is_file() or not sums.is_file():
        return None
    lines = [line.split(maxsplit=1) for line in sums.read_text(encoding="utf-8").splitlines()]
    listed = {words[1].strip().lstrip("*"): words[0] for words in lines if len(words) == 2}
    expected = listed.get(path.name)
    if expected is None:
        return None
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return "ok" if found == expected else "wrong"
