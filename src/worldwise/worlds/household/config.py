"""Settings of the household world, and named sizes for them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from worldwise.config import COSMETIC, FrozenConfig
from worldwise.worlds.household.rooms import TASK_ROOMS

RoomName = Literal["kitchen", "bedroom", "living_room", "bathroom"]
TaskTypeName = Literal[
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
]
_ALL_ROOMS: tuple[RoomName, ...] = ("kitchen", "bedroom", "living_room", "bathroom")
_ALL_TYPES: tuple[TaskTypeName, ...] = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)


class HouseholdConfig(FrozenConfig):
    """Which household games are played and by which rules.

    Attributes:
        source: `generated` makes games from the room tables, `official` reads ALFWorld's.
        data: folder that holds the official games; None takes `alfworld` in WORLDWISE_DATA.
        max_turns: turn limit of an episode (ALFWorld's own is 50).
        accept_put_form: also take "put mug 1 in/on desk 2", as ALFWorld before 0.4.0 had it.
        success_reward: reward of the action that solves the task; all others give 0.
        seed: start of every random choice of the generator, and of the order of official games.
        task_types: types of tasks to play; generated in equal shares.
        rooms: kinds of rooms to make. From here on the settings are the generator's.
        receptacles_min, receptacles_max: number of places in a room. A kind of room keeps its own
            largest size (kitchen 30, bedroom 20, living room 18, bathroom 14) as a further limit,
            and no room is smaller than half of the larger limit.
        same_type_max: most places of one type in a room.
        distractors_min, distractors_max: number of objects that the goal does not speak of, at most
            1.5 for each place of the room.
        copies_max: most objects of the goal's type (two tasks have at least 2), and of any other.
        shared_spots: let neighbouring places share one standing place, as the official rooms do.
        layouts: number of different rooms of each kind that train and valid_seen play in.
        unseen_layouts: the same for valid_unseen; never a room with an inventory of the former.
        train_games, valid_seen_games, valid_unseen_games: number of games in the splits.
    """

    source: Literal["generated", "official"] = "generated"
    data: Annotated[str | None, COSMETIC] = None
    max_turns: int = Field(50, ge=1, le=1000)
    accept_put_form: bool = False
    success_reward: float = Field(1.0, gt=0.0)
    seed: int = Field(0, ge=0)
    rooms: tuple[RoomName, ...] = Field(_ALL_ROOMS, min_length=1)
    task_types: tuple[TaskTypeName, ...] = Field(_ALL_TYPES, min_length=1)
    receptacles_min: int = Field(6, ge=4, le=60)
    receptacles_max: int = Field(16, ge=4, le=60)
    same_type_max: int = Field(30, ge=1, le=30)
    distractors_min: int = Field(6, ge=0, le=80)
    distractors_max: int = Field(14, ge=0, le=80)
    copies_max: int = Field(3, ge=1, le=6)
    shared_spots: bool = True
    layouts: int = Field(200, ge=1, le=100_000)
    unseen_layouts: int = Field(40, ge=1, le=100_000)
    train_games: int = Field(100_000, ge=1)
    valid_seen_games: int = Field(1_000, ge=1)
    valid_unseen_games: int = Field(1_000, ge=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for low, high in (("receptacles_min", "receptacles_max"), ("distractors_min", "distractors_max")):
            least, most = getattr(self, low), getattr(self, high)
            if least > most:
                raise ValueError(f"{low}={least} is above {high}={most}: lower the first or raise the second")
        for name in ("rooms", "task_types"):
            values = getattr(self, name)
            if len(set(values)) != len(values):
                raise ValueError(f"{name}={values!r} names one twice: list each once")
        for task_type in self.task_types:
            if not set(self.rooms) & set(TASK_ROOMS[task_type]):
                raise ValueError(
                    f"task_types has {task_type}, which needs one of {', '.join(TASK_ROOMS[task_type])}, "
                    f"but rooms={self.rooms!r}: add one of those rooms or leave the type out"
                )
        return self


SIZES: dict[str, dict[str, object]] = {
    "tiny": {
        "rooms": ("bedroom", "living_room"),
        "task_types": ("pick_and_place_simple", "look_at_obj_in_light"),
        "receptacles_min": 4,
        "receptacles_max": 5,
        "same_type_max": 1,
        "distractors_min": 3,
        "distractors_max": 3,
        "copies_max": 1,
        "shared_spots": False,
        "max_turns": 10,
    },
    "small": {
        "receptacles_min": 5,
        "receptacles_max": 9,
        "same_type_max": 3,
        "distractors_min": 4,
        "distractors_max": 8,
        "copies_max": 2,
        "max_turns": 30,
    },
    "default": {},
    "full": {
        "receptacles_min": 6,
        "receptacles_max": 30,
        "distractors_min": 14,
        "distractors_max": 36,
        "copies_max": 4,
    },
}
"""Named sizes: values for `HouseholdConfig(**SIZES[name])`, from toy rooms to the official games' scale."""
