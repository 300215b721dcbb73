"""The household engine: turns a second and milliseconds a game file, in CPU time on one core.

    python benchmarks/household_turns.py [--games 40] [--turns 200000]

Random play over admissible commands with the sorted admissible list made every turn, on official
games where `WORLDWISE_DATA` (or ../shared/data) has them and on a built-in room otherwise.
"""

from __future__ import annotations

import random
import time
from itertools import islice

from common import parser, publish, setting

from worldwise.worlds.contract import Task
from worldwise.worlds.household.engine import CompiledGames, HouseholdWorld
from worldwise.worlds.household.game import Game, Goal, Receptacle, Thing
from worldwise.worlds.household.official import OfficialGames
from worldwise.worlds.household.pddl import build_game, open_game_file

EPISODE_TURNS = 50


def built_in_game() -> Game:
    """A kitchen-sized room for machines without the official games."""
    receptacles = tuple(
        Receptacle(f"{kind.lower()} {count - index}", kind, len(kind) * 10 + index, kind in ("Drawer", "Cabinet"))
        for kind, count in (("Cabinet", 8), ("CounterTop", 3), ("Drawer", 9), ("Fridge", 1), ("SinkBasin", 1))
        for index in range(count)
    )
    kinds = ("Apple", "Bowl", "Fork", "Knife", "Mug", "Plate", "Potato", "Spoon")
    things = tuple(
        Thing(
            f"{kind.lower()} {4 - index}",
            kind,
            (receptacles[(index * 5 + place) % len(receptacles)].name,),
            receptacles[(index * 5 + place) % len(receptacles)].location,
            pickupable=True,
            cleanable=True,
            coolable=kind in ("Apple", "Potato"),
            sliceable=kind in ("Apple", "Potato"),
        )
        for place, kind in enumerate(kinds)
        for index in range(4)
    )
    pairs = frozenset((receptacle.type, kind) for receptacle in receptacles for kind in kinds)
    goal = Goal("pick_and_place_simple", "Mug", "Fridge", "put a mug in fridge.")
    return Game("built-in", receptacles, things, 0, pairs, goal)


class Shelf:
    """Gives the game that a task's payload numbers."""

    def __init__(self, games: list[Game]) -> None:
        self.games = games

    def __call__(self, task: Task) -> Game:
        return self.games[int(task.task_id)]


def play(games: list[Game], turns: int) -> tuple[float, float]:
    """CPU seconds a turn of `HouseholdWorld.step` (episodes' resets included), and of the random choice."""
    rng = random.Random(0)
    world = HouseholdWorld(CompiledGames(Shelf(games), len(games)), max_turns=EPISODE_TURNS)
    tasks = [Task(str(number), game.goal.task_type, "bench") for number, game in enumerate(games)]
    for task in tasks:
        world.reset(task, 0)
    done = episode = 0
    begin = time.process_time()
    while done < turns:
        _, info = world.reset(tasks[episode % len(tasks)], 0)
        episode += 1
        ended = False
        while not ended:
            admissible = info.admissible or ()
            _, _, terminated, truncated, info = world.step(admissible[int(rng.random() * len(admissible))])
            done += 1
            ended = terminated or truncated
    played = time.process_time() - begin
    begin = time.process_time()
    for _ in range(done):
        admissible[int(rng.random() * len(admissible))]
    return played / done, (time.process_time() - begin) / done


def main() -> None:
    """Measure and print Markdown."""
    options = parser(__doc__)
    options.add_argument("--games", type=int, default=40, help="how many official games (default 40)")
    options.add_argument("--turns", type=int, default=200_000, help="turns to play (default 200000)")
    options.add_argument("--repeats", type=int, default=3, help="measure so often, report the best (default 3)")
    chosen = options.parse_args()
    facts = setting()
    source = OfficialGames.found()
    if source is None:
        games, kind, read = [built_in_game()], "built-in room", "-"
    else:
        files = list(islice(source.source("valid_seen").raw(), chosen.games))
        reads = []
        for _ in range(chosen.repeats):
            begin = time.process_time()
            games = [build_game(open_game_file(data, name), name, name) for name, data in files]
            reads.append((time.process_time() - begin) / len(files) * 1e3)
        kind, read = f"official valid_seen, first {len(games)}", f"{min(reads):.2f}"
    # The best of the repeats: what else runs on a shared core only ever adds.
    played, overhead = min(play(games, chosen.turns) for _ in range(chosen.repeats))
    header = ["Games", "Turns/CPU s", "Microseconds a turn", "of which random choice", "Milliseconds a game file"]
    row = [kind, f"{1 / played:.0f}", f"{played * 1e6:.2f}", f"{overhead * 1e6:.2f}", read]
    text = f"{chosen.turns} turns of random play, one core; the best of {chosen.repeats} repeat(s)."
    publish("The household engine", facts, [(text, (header, [row]))], chosen.out)


if __name__ == "__main__":
    main()
