"""The reader, the data source and the check of official games; the engine against recorded play."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import pickle
import random
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from worldwise.worlds.contract import Task, WorldError
from worldwise.worlds.household.compiled import CompiledGame
from worldwise.worlds.household.engine import CompiledGames, HouseholdWorld
from worldwise.worlds.household.game import Game, GameFileError, Goal
from worldwise.worlds.household.official import LARGEST_GAME_FILE, OFFICIAL_SPLITS, OfficialGames, data_folder
from worldwise.worlds.household.pddl import read_game, read_goal, shown_names
from worldwise.worlds.household.state import HouseholdState
from worldwise.worlds.household.verify import (
    EXPECTED_COUNTS,
    KNOWN_CONTENT,
    content_digest,
    how_to_obtain,
    verify_official,
)

PROBLEM = """
(define (problem hand_made)
(:domain alfred)
(:objects
  agent1 - agent
  Mug - object
)
(:init
  (receptacleType Shelf_bar__plus_01_bar_00 ShelfType)
  (receptacleType Shelf_bar__minus_01_bar_00 ShelfType)
  (receptacleType Sink_bar__plus_01_bar_SinkBasin SinkBasinType)
  (receptacleType Fridge_bar__plus_02 FridgeType)
  (openable Fridge_bar__plus_02)
  (receptacleAtLocation Shelf_bar__plus_01_bar_00 loc_bar_1)
  (receptacleAtLocation Shelf_bar__minus_01_bar_00 loc_bar_1)
  (receptacleAtLocation Sink_bar__plus_01_bar_SinkBasin loc_bar_2)
  (receptacleAtLocation Fridge_bar__plus_02 loc_bar_3)
  (objectType Mug_bar__plus_03 MugType)
  (objectType Mug_bar__minus_03 MugType)
  (objectType Egg_bar__plus_04 EggType)
  (objectType Chair_bar__plus_05 ChairType)
  (pickupable Mug_bar__plus_03)  (pickupable Mug_bar__minus_03)
  (cleanable Mug_bar__plus_03)
  (heatable Egg_bar__plus_04) (coolable Egg_bar__plus_04) (sliceable Egg_bar__plus_04)
  (isCool Egg_bar__plus_04)
  (isReceptacleObject Mug_bar__plus_03)
  (inReceptacleObject Egg_bar__plus_04 Mug_bar__plus_03)
  (inReceptacleObject Mug_bar__plus_03 Mug_bar__plus_03)
  (inReceptacle Mug_bar__plus_03 Shelf_bar__plus_01_bar_00)
  (inReceptacle Mug_bar__plus_03 Shelf_bar__minus_01_bar_00)
  (inReceptacle Mug_bar__minus_03 Fridge_bar__plus_02)
  (inReceptacle Egg_bar__plus_04 Fridge_bar__plus_02)
  (objectAtLocation Mug_bar__plus_03 loc_bar_1)
  (objectAtLocation Mug_bar__minus_03 loc_bar_3)
  (objectAtLocation Egg_bar__plus_04 loc_bar_3)
  (canContain ShelfType MugType)
  (canContain FridgeType MugType)
  (moveable Chair_bar__plus_05)
  (= (total-cost) 0)
  (= (distance loc_bar_1 loc_bar_2) 3)
  (atLocation agent1 loc_bar_9)
)
GOAL
)
"""
PLACE = "(:goal (and (exists (?r - receptacle) (exists (?o - object) (and {}))))) "
SIMPLE_GOAL = PLACE.format("(inReceptacle ?o ?r)\n (objectType ?o MugType) (receptacleType ?r ShelfType)")


def game_file(**changes: object) -> bytes:
    content: dict[str, object] = {
        "pddl_domain": "not read",
        "grammar": '"task": [{"rhs": "Your task is to: put a mug in shelf."}]',
        "pddl_problem": PROBLEM.replace("GOAL", SIMPLE_GOAL),
        "solvable": True,
        "walkthrough": [
            "go to fridge 1",
            "open fridge 1",
            "take mug 2 from fridge 1",
            "go to shelf 1",
            "put mug 2 in/on shelf 1",
        ],
    }
    content.update(changes)
    return json.dumps({key: value for key, value in content.items() if value != "DROP"}).encode()


def changed_problem(old: str, new: str) -> bytes:
    problem = PROBLEM.replace("GOAL", SIMPLE_GOAL)
    assert old in problem
    return game_file(pddl_problem=problem.replace(old, new))


def write_games(folder: Path, form: str, contents: dict[str, bytes]) -> None:
    """The games as an unpacked release or as an archive of their split."""
    if form == "release":
        write_release(folder, contents)
    else:
        write_archive(folder / "valid_seen.tar.xz", contents)


class TestReader:
    def test_names_count_down_in_the_order_of_ids(self) -> None:
        ids = ["Shelf_bar_b", "Shelf_bar_a", "Sink_bar_1_bar_SinkBasin", "Bathtub_bar_1_bar_BathtubBasin"]
        assert shown_names([*ids, "Sink_bar_1", "Orphan"]) == {
            "Shelf_bar_a": "shelf 2",
            "Shelf_bar_b": "shelf 1",
            "Sink_bar_1_bar_SinkBasin": "sinkbasin 1",
            "Bathtub_bar_1_bar_BathtubBasin": "bathtubbasin 1",
            "Sink_bar_1": "sink 1",
            "Orphan": "orphan ",
        }

    def test_a_game(self) -> None:
        game = read_game(game_file(), "hand/made")
        assert [place.name for place in game.receptacles] == ["fridge 1", "shelf 2", "shelf 1", "sinkbasin 1"]
        assert [place.openable for place in game.receptacles] == [True, False, False, False]
        assert [place.type for place in game.receptacles] == ["Fridge", "Shelf", "Shelf", "SinkBasin"]
        fridge, shelf, other, basin = (place.location for place in game.receptacles)
        assert shelf == other
        assert len({fridge, shelf, basin, game.start}) == 4
        things = {thing.name: thing for thing in game.things}
        assert list(things) == ["chair 1", "egg 1", "mug 2", "mug 1"]
        assert things["mug 1"].inside == ("shelf 1", "shelf 2")
        assert things["mug 1"].location == shelf
        assert (things["mug 1"].vessel, things["mug 1"].holds) == (True, ("egg 1",))
        assert (things["mug 1"].cleanable, things["mug 2"].cleanable) == (True, False)
        assert (things["egg 1"].cool, things["egg 1"].pickupable, things["egg 1"].sliceable) == (True, False, True)
        assert (things["chair 1"].location, things["chair 1"].inside) == (None, ())
        assert game.can_contain == {("Shelf", "Mug"), ("Fridge", "Mug")}
        assert game.goal == Goal("pick_and_place_simple", "Mug", "Shelf", "put a mug in shelf.")
        assert game.game_id == "hand/made"

    def test_the_walkthrough_is_brought_to_the_present_command_form(self) -> None:
        game = read_game(game_file(), "hand/made")
        assert game.walkthrough is not None
        assert game.walkthrough[-1] == "move mug 2 to shelf 1"
        assert read_game(game_file(walkthrough=None), "hand/made").walkthrough is None

    def test_escapes_in_the_goal_sentence(self) -> None:
        grammar = r'{"rhs": "Your task is to: put a \"mug\" in shelf."}'
        assert read_game(game_file(grammar=grammar), "x").goal.text == 'put a "mug" in shelf.'

    def test_the_grammar_is_not_evaluated(self, tmp_path: Path) -> None:
        trap = tmp_path / "trap"
        grammar = f'{{__import__("pathlib").Path({str(trap)!r}).touch()}} "Your task is to: x."'
        read_game(game_file(grammar=grammar), "x")
        assert not trap.exists()

    @pytest.mark.parametrize(
        ("atoms", "task_type", "sliced"),
        [
            ("", "pick_and_place_simple", False),
            ("(cleanable ?o) (isClean ?o)", "pick_clean_then_place_in_recep", False),
            ("(heatable ?o) (isHot ?o)", "pick_heat_then_place_in_recep", False),
            ("(coolable ?o) (isCool ?o)", "pick_cool_then_place_in_recep", False),
            ("(sliceable ?o) (isSliced ?o)", "pick_and_place_simple", True),
            ("(sliceable ?o)(isSliced ?o)(heatable ?o)(isHot ?o)", "pick_heat_then_place_in_recep", True),
        ],
    )
    def test_placing_goals(self, atoms: str, task_type: str, sliced: bool) -> None:
        text = PLACE.format(f"{atoms} (objectType ?o EggType) (receptacleType ?r DeskType) (inReceptacle ?o ?r)")
        assert read_goal(f"{text})", "words.", "x") == Goal(task_type, "Egg", "Desk", "words.", sliced)

    def test_the_goals_of_two_things_and_of_looking(self) -> None:
        pair = """(:goal (and (exists (?r - receptacle) (exists (?o1 - object) (and
            (objectType ?o1 CDType) (receptacleType ?r SafeType) (inReceptacle ?o1 ?r)
            (exists (?o2 - object) (and (not (= ?o1 ?o2)) (objectType ?o2 CDType)
            (receptacleType ?r SafeType) (inReceptacle ?o2 ?r))))))))"""
        assert read_goal(f"{pair})", "w.", "x") == Goal("pick_two_obj_and_place", "CD", "Safe", "w.")
        look = """(:goal (and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and
            (objectType ?ot DeskLampType) (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l)
            (atLocation ?a ?l) (inReceptacle ?ot ?r)))
            (exists (?o - object ?a - agent) (and (objectType ?o PenType) (holds ?a ?o)))))"""
        assert read_goal(f"{look})", "w.", "x") == Goal("look_at_obj_in_light", "Pen", "DeskLamp", "w.")

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"", "empty"),
            (game_file()[:-40], "not valid JSON"),
            (game_file()[:300], "not valid JSON"),
            (b"\xff\xfe\x00", "not valid JSON"),
            (b"[1, 2]", "a JSON list"),
            (game_file(pddl_problem="DROP"), "'pddl_problem' is missing"),
            (game_file(pddl_problem=3), "'pddl_problem' is no text"),
            (game_file(pddl_problem=" "), "'pddl_problem' is no text"),
            (game_file(grammar="DROP"), "'grammar' is missing"),
            (game_file(grammar="nothing here"), "no sentence"),
            (game_file(walkthrough="go"), "walkthrough is 'go'"),
            (game_file(walkthrough=[1]), "walkthrough is"),
            (game_file(solvable="DROP"), "solvable is None"),
            (game_file(solvable=1), "solvable is 1"),
            (game_file(pddl_problem="(define (problem x))"), r"no \(:init"),
            (game_file(pddl_problem=PROBLEM[: PROBLEM.index("GOAL")]), r"no \(:init"),
            (game_file(pddl_problem=PROBLEM.replace("GOAL", SIMPLE_GOAL)[:-120]), "breaks off|unknown task type"),
            (changed_problem("(atLocation agent1 loc_bar_9)", ""), "0 agents"),
            (changed_problem("(atLocation agent1 loc_bar_9)", "(atLocation agent1"), "brackets|end in"),
            (changed_problem("(canContain ShelfType MugType)", "(canContain ShelfType)"), "canContain ShelfType"),
            (changed_problem("(canContain ShelfType MugType)", "(canContain Shelf MugType)"), "'Shelf' is no type"),
            (changed_problem("(canContain ShelfType MugType)", "canContain ShelfType MugType)"), "brackets"),
            (changed_problem("(canContain ShelfType MugType)", "()"), "cannot begin"),
            (changed_problem("(canContain ShelfType MugType)", "(opened Fridge_bar__plus_02)"), "opened Fridge"),
            (changed_problem("(objectType Mug_bar__plus_03 MugType)", ""), "thing Mug_bar__plus_03 has no type"),
            (changed_problem("(receptacleType Fridge_bar__plus_02 FridgeType)", ""), "receptacle Fridge.* no type"),
            (changed_problem("(receptacleAtLocation Fridge_bar__plus_02 loc_bar_3)", ""), "at no location"),
            (
                changed_problem(
                    "(objectAtLocation Mug_bar__plus_03 loc_bar_1)",
                    "(objectAtLocation Mug_bar__plus_03 loc_bar_1) (objectAtLocation Mug_bar__plus_03 loc_bar_2)",
                ),
                "both loc_bar_1 and loc_bar_2",
            ),
            (changed_problem("(objectType ?o MugType)", "(objectType ?o MugType) (isHot ?o)"), "unknown task type"),
            (changed_problem("(inReceptacle ?o ?r)", ""), "unknown task type"),
            (changed_problem("(exists (?o - object)", "(forall (?o - object)"), "unknown task type"),
        ],
    )
    def test_damaged_and_foreign_files(self, data: bytes, words: str) -> None:
        with pytest.raises(GameFileError, match=words) as caught:
            read_game(data, "some/game", "/data/some/game.tw-pddl")
        assert str(caught.value).startswith("/data/some/game.tw-pddl: ")

    def test_every_truncation_is_reported(self) -> None:
        data = game_file()
        for length in range(0, len(data), 37):
            with pytest.raises(GameFileError):
                read_game(data[:length], "x")
        problem = PROBLEM.replace("GOAL", SIMPLE_GOAL).rstrip()
        for length in range(0, len(problem), 11):
            with pytest.raises(GameFileError):
                read_game(game_file(pddl_problem=problem[:length]), "x")


MUG_FOLDER = "pick_and_place_simple-Mug-None-Shelf-{}"
CONTENTS = {
    f"valid_seen/{MUG_FOLDER.format(20)}/trial_b": game_file(),
    f"valid_seen/{MUG_FOLDER.format(3)}/trial_a": game_file(walkthrough=None),
    f"valid_seen/{MUG_FOLDER.format(20)}/trial_a": game_file(),
    f"valid_seen/{MUG_FOLDER.format(5)}/trial_a": game_file(solvable=False),
    "valid_seen/pick_and_place_with_movable_recep-Mug-Cup-Shelf-3/trial_a": game_file(),
    "valid_seen/pick_and_place_simple-AppleSliced-None-Shelf-3/trial_a": game_file(),
}
IDS = [
    f"valid_seen/{MUG_FOLDER.format(20)}/trial_a",
    f"valid_seen/{MUG_FOLDER.format(20)}/trial_b",
    f"valid_seen/{MUG_FOLDER.format(3)}/trial_a",
]


def write_release(folder: Path, contents: dict[str, bytes] = CONTENTS) -> Path:
    for name, data in contents.items():
        path = folder / name / "game.tw-pddl"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    return folder


def write_archive(path: Path, contents: dict[str, bytes] = CONTENTS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:xz") as archive:
        for name, data in contents.items():
            for file, content in (("game.tw-pddl", data), ("traj_data.json", b"{}")):
                member = tarfile.TarInfo(f"json_2.1.1/{name}/{file}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return path


class TestSource:
    @pytest.fixture(params=["splits", "release", "nested", "archive"])
    def folder(self, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        if request.param == "archive":
            write_archive(tmp_path / "valid_seen.tar.xz")
        else:
            below = {"splits": "", "release": "json_2.1.1", "nested": "alfworld/json_2.1.1"}[request.param]
            write_release(tmp_path / below)
        return tmp_path

    def test_tasks_are_sorted_and_only_the_games_that_alfworld_plays(self, folder: Path) -> None:
        games = OfficialGames(folder)
        assert games.splits == ("valid_seen",)
        tasks = games.tasks("valid_seen")
        assert tasks == [Task(name, "pick_and_place_simple", "valid_seen") for name in IDS]
        assert games.tasks("valid_seen", 2) == tasks[:2]
        with pytest.raises(WorldError, match=r"count=4 is outside of 0\.\.3"):
            games.tasks("valid_seen", 4)

    def test_games_are_the_same_from_folder_archive_and_pickle(self, folder: Path) -> None:
        games = OfficialGames(folder)
        for source in (games, pickle.loads(pickle.dumps(games))):
            for task in source.tasks("valid_seen"):
                assert source.load(task) == read_game(CONTENTS[task.task_id], task.task_id)

    def test_a_world_plays_them(self, folder: Path) -> None:
        games = OfficialGames(folder)
        world = HouseholdWorld(CompiledGames(games))
        observation, _ = world.reset(games.tasks("valid_seen")[0], 0)
        assert observation.endswith("Your task is to: put a mug in shelf.")
        assert world.game.walkthrough is not None
        # A mug is on the shelf already, so the first turn ends the episode.
        assert world.step("look").terminated

    def test_unknown_tasks(self, folder: Path) -> None:
        games = OfficialGames(folder)
        for name in ("valid_seen/none/trial", "train/x/y", "../valid_seen/x"):
            with pytest.raises(WorldError, match="task"):
                games.load(Task(name, "pick_and_place_simple", "valid_seen"))

    def test_absent_and_unknown_splits(self, folder: Path) -> None:
        games = OfficialGames(folder)
        with pytest.raises(WorldError, match=r"'train'.*valid_seen are there.*kedro worldwise data alfworld"):
            games.tasks("train")
        with pytest.raises(WorldError, match=r"'test'.*unknown split"):
            games.tasks("test")

    def test_the_newest_release_is_taken(self, tmp_path: Path) -> None:
        write_release(tmp_path / "json_2.1.1")
        write_release(tmp_path / "json_2.1.3", {IDS[0]: CONTENTS[IDS[0]]})
        assert len(OfficialGames(tmp_path).tasks("valid_seen")) == 1

    def test_the_environment_variable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_archive(tmp_path / "alfworld" / "valid_seen.tar.xz")
        monkeypatch.setenv("WORLDWISE_DATA", str(tmp_path))
        assert data_folder()[0] == tmp_path / "alfworld"
        assert len(OfficialGames().tasks("valid_seen")) == 3
        assert data_folder(tmp_path / "elsewhere")[0] == tmp_path / "elsewhere"

    def test_a_missing_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WORLDWISE_DATA", str(tmp_path / "none"))
        with pytest.raises(WorldError) as caught:
            OfficialGames()
        for words in ("WORLDWISE_DATA", str(tmp_path / "none"), "kedro worldwise data alfworld"):
            assert words in str(caught.value)
        assert OfficialGames.found() is None
        (tmp_path / "none" / "alfworld").mkdir(parents=True)
        with pytest.raises(WorldError, match=r"expected json_2\.1\.1/<split>/"):
            OfficialGames()

    @pytest.mark.parametrize("kept", [0, 100, -200])
    def test_a_damaged_archive(self, tmp_path: Path, kept: int) -> None:
        archive = write_archive(tmp_path / "valid_seen.tar.xz")
        archive.write_bytes(archive.read_bytes()[:kept])
        with pytest.raises(GameFileError, match=r"valid_seen\.tar\.xz: cannot be read"):
            OfficialGames(tmp_path).tasks("valid_seen")

    @pytest.mark.parametrize("form", ["release", "archive"])
    def test_a_damaged_game(self, tmp_path: Path, form: str) -> None:
        contents = {IDS[0]: game_file(), IDS[1]: game_file()[:500]}
        write_games(tmp_path, form, contents)
        with pytest.raises(GameFileError, match=f"{IDS[1]}/game.tw-pddl: not valid JSON"):
            OfficialGames(tmp_path).tasks("valid_seen")

    @pytest.mark.parametrize("form", ["release", "archive"])
    def test_a_file_too_large_to_be_a_game_is_not_read(self, tmp_path: Path, form: str) -> None:
        contents = {IDS[0]: game_file(), IDS[1]: bytes(LARGEST_GAME_FILE + 1)}
        write_games(tmp_path, form, contents)
        with pytest.raises(GameFileError, match=rf"{IDS[1]}/game.tw-pddl: has 16,777,217 bytes.*fetch the games"):
            OfficialGames(tmp_path).tasks("valid_seen")

    def test_a_foreign_folder(self, tmp_path: Path) -> None:
        write_release(tmp_path, {"valid_seen/juggle-Mug-None-Shelf-3/trial_a": game_file()})
        with pytest.raises(GameFileError, match="unknown task type 'juggle'"):
            OfficialGames(tmp_path).tasks("valid_seen")


class TestVerify:
    def test_what_is_wrong_is_said(self, tmp_path: Path) -> None:
        contents = {
            **{name: game_file(walkthrough=["look"]) for name in IDS[:1]},
            IDS[1]: b"{",
            "valid_seen/look_at_obj_in_light-Mug-None-DeskLamp-3/trial_a": game_file(),
        }
        archive = write_archive(tmp_path / "valid_seen.tar.xz", contents)
        (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  {archive.name}\n")
        report = verify_official(tmp_path, splits=("valid_seen", "valid_unseen"))
        assert report.missing == ("valid_unseen",)
        assert not report.ok
        (check,) = report.splits
        assert check.checksum == "wrong"
        assert check.counts == {"pick_and_place_simple": 1}
        assert len(check.damaged) == 2
        problems = "\n".join(report.problems)
        for words in ("differs from its SHA256SUMS", "not valid JSON", "its goal is that of", "valid_unseen: not in"):
            assert words in problems
        assert "1 games of pick_and_place_simple, expected 35" in problems
        assert "problem: " in report.text()

    def test_a_walkthrough_that_does_not_win_is_reported(self, tmp_path: Path) -> None:
        problem = PROBLEM.replace("GOAL", SIMPLE_GOAL.replace("ShelfType", "SinkBasinType"))
        write_release(tmp_path, {IDS[0]: game_file(pddl_problem=problem)})
        (check,) = verify_official(tmp_path, splits=("valid_seen",)).splits
        assert check.unwon == (IDS[0],)
        assert check.checksum == "unknown"

    def test_a_right_checksum(self, tmp_path: Path) -> None:
        archive = write_archive(tmp_path / "valid_seen.tar.xz")
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        (tmp_path / "SHA256SUMS").write_text(f"{digest}  {archive.name}\n")
        (check,) = verify_official(tmp_path, splits=("valid_seen",)).splits
        assert check.checksum == "ok"

    def test_an_unpacked_copy_is_known_by_its_content(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        content = game_file(walkthrough=["look"])
        write_release(tmp_path, {IDS[0]: content})
        report = verify_official(tmp_path, splits=("valid_seen",))
        assert "not byte for byte those" in report.text()
        line = f"{IDS[0]} {hashlib.sha256(content).hexdigest()}\n"
        monkeypatch.setitem(KNOWN_CONTENT, "valid_seen", hashlib.sha256(line.encode()).hexdigest())
        known = verify_official(tmp_path, splits=("valid_seen",))
        assert [check.checksum for check in known.splits] == ["ok"]
        assert "not byte for byte" not in known.text()

    @pytest.mark.official
    def test_the_games_at_hand_are_those_that_were_checked(self, official: OfficialGames) -> None:
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in official.source("valid_unseen").raw()}
        assert content_digest(digests) == KNOWN_CONTENT["valid_unseen"]

    def test_where_the_games_come_from(self, tmp_path: Path) -> None:
        for words in ("json_2.1.2_tw-pddl.zip", "json_2.1.3_tw-pddl.zip", "WORLDWISE_DATA"):
            assert words in how_to_obtain()
        with pytest.raises(WorldError, match="kedro worldwise data alfworld"):
            verify_official(tmp_path / "none")
        with pytest.raises(WorldError, match="'test'"):
            verify_official(tmp_path, splits=("test",))

    def test_the_published_counts(self) -> None:
        totals = {split: sum(counts.values()) for split, counts in EXPECTED_COUNTS.items()}
        assert totals == {"train": 3553, "valid_seen": 140, "valid_unseen": 134, "valid_train": 200}


@pytest.fixture(scope="module")
def official() -> OfficialGames:
    games = OfficialGames.found()
    if games is None or games.splits != OFFICIAL_SPLITS:
        pytest.skip("the official games are not there: set WORLDWISE_DATA (kedro worldwise data alfworld)")
    return games


def wins(game: Game) -> bool:
    """The walkthrough wins with its last command, and each command was on the list."""
    assert game.walkthrough
    state = HouseholdState(CompiledGame(game))
    for command in game.walkthrough:
        assert not state.won
        assert state.progress < 1
        assert command in state.admissible()
        state.play(command)
    return state.won and state.progress == 1


@pytest.mark.official
class TestOfficial:
    def traces(self, official: OfficialGames) -> Iterator[dict[str, object]]:
        path = official.folder / "reference_traces.jsonl.xz"
        if not path.is_file():
            pytest.skip(f"there are no recorded transcripts at {path}")
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines)

    def test_recorded_play_is_repeated_word_for_word(self, official: OfficialGames) -> None:
        states = 0
        for trace in self.traces(official):
            task_id = str(trace["game"]).removesuffix("/game.tw-pddl")
            state = HouseholdState(CompiledGame(official.load(Task(task_id, "", task_id.partition("/")[0]))))
            steps = trace["steps"]
            assert isinstance(steps, list)
            for step in steps:
                text = state.observation if step["action"] is None else state.play(step["action"])
                found = {"observation": text, "admissible": state.admissible(), "won": state.won}
                assert found == {key: step[key] for key in found}, (task_id, step["action"])
                states += 1
        assert states >= 3606

    @pytest.mark.parametrize("split", ["valid_seen", "valid_unseen", "valid_train"])
    def test_walkthroughs_of_the_small_splits_win(self, official: OfficialGames, split: str) -> None:
        tasks = official.tasks(split)
        assert len(tasks) == sum(EXPECTED_COUNTS[split].values())
        for task in tasks:
            game = official.load(task)
            assert game.goal.task_type == task.task_type
            assert wins(game), task.task_id

    def test_all_games_can_be_read_and_won(self, official: OfficialGames) -> None:
        report = verify_official(official.folder)
        assert report.problems == ()
        assert {check.split: check.counts for check in report.splits} == EXPECTED_COUNTS
        assert {check.checksum for check in report.splits} == {"ok"}

    def test_list_and_play_agree_on_official_games(self, official: OfficialGames) -> None:
        rng = random.Random(0)
        for task in official.tasks("valid_unseen")[::15]:
            state = HouseholdState(CompiledGame(official.load(task)))
            seen: set[str] = set()
            for _ in range(60):
                admissible = state.admissible()
                assert admissible == sorted(set(admissible))
                for command in sorted(seen.union(admissible)):
                    other = state.copy()
                    other.play(command)
                    assert other.accepted == (command in admissible)
                seen.update(rng.sample(admissible, 5))
                state.play(rng.choice(admissible))
