"""The digest of code sees what changes a result and nothing else."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from worldwise.ledger.code import CodeSet, changed_code, import_all

FILES = {
    "__init__.py": "",
    "nodes.py": """
from __future__ import annotations
from typing import TYPE_CHECKING
from toypack import maths
from toypack.types import Config
from toypack.learner import Learner, unused
from toypack.parts import scale as rescale
if TYPE_CHECKING:
    from toypack.learner import unused

LIMIT = 3

def train(config: Config) -> int:
    "Trains."
    return rescale(Learner().step(LIMIT)) + maths.double(2)

def other() -> int:
    return maths.half(4)

def named(name):
    def inner():
        return train(name)
    return inner
""",
    "types.py": "class Config: pass\n",
    "learner.py": """
class Learner:
    def step(self, count):
        from toypack.late import late
        return late(count)

def unused():
    return 1
""",
    "late.py": "def late(count):\n    return count + 1\n",
    "maths.py": "def double(x):\n    return 2 * x\n\ndef half(x):\n    return x / 2\n",
    "parts/__init__.py": "from toypack.parts.scaling import scale\n",
    "parts/scaling.py": "FACTOR = 2\n\ndef scale(x):\n    return FACTOR * x\n",
    "parts/templates/text.jinja": "Hello",
    "track/__init__.py": "",
}

Change = Callable[..., dict[str, str]]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = tmp_path / "toypack"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield root
    for name in [name for name in sys.modules if name.partition(".")[0] == "toypack"]:
        del sys.modules[name]


@pytest.fixture
def digests(package: Path) -> Change:
    nodes = importlib.import_module("toypack.nodes")

    def find(function: str = "train", left_out: tuple[str, ...] = (), **changes: str) -> dict[str, str]:
        for name, text in changes.items():
            (package / f"{name}.py").write_text(text)
        found: Any = nodes.named("x") if function == "named" else getattr(nodes, function)
        return CodeSet("toypack", package, left_out).digests(found)

    return find


def test_everything_that_is_reached_counts_and_nothing_else(digests: Change) -> None:
    reached = set(digests())
    assert reached == {
        "toypack",
        "toypack.nodes",
        "toypack.learner",
        "toypack.late",
        "toypack.maths",
        "toypack.parts",
        "toypack.parts.scaling",
        "toypack.types",
    }
    assert set(digests("other")) == {"toypack", "toypack.nodes", "toypack.maths"}


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("nodes", "LIMIT = 3", "LIMIT = 4"),
        ("learner", "late(count)", "late(count) + 1"),
        ("late", "count + 1", "count + 2"),
        ("maths", "2 * x", "3 * x"),
        ("parts/scaling", "FACTOR = 2", "FACTOR = 3"),
        ("types", "pass", "a = 1"),
        ("parts/__init__", "from toypack", "print(1)\nfrom toypack"),
    ],
)
def test_a_change_of_what_is_reached_is_seen(digests: Change, module: str, old: str, new: str) -> None:
    before = digests()
    after = digests(**{module: FILES[f"{module}.py"].replace(old, new)})
    assert changed_code(before, after) == ["toypack." + module.replace("/", ".").removesuffix(".__init__")]


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("nodes", '"Trains."', '"Trains a model."'),
        ("nodes", "LIMIT = 3", "LIMIT = (3)  # why"),
        ("nodes", "half(4)", "half(5)"),
        ("maths", "x / 2", "x / 3"),
        ("learner", "return 1", "return 2"),
        ("late", "(count)", "(count: int) -> int"),
    ],
)
def test_a_change_of_anything_else_is_not(digests: Change, module: str, old: str, new: str) -> None:
    assert digests() == digests(**{module: FILES[f"{module}.py"].replace(old, new)})


def test_templates_count_with_their_package(digests: Change, package: Path) -> None:
    before = digests()
    (package / "parts" / "templates" / "text.jinja").write_text("Good morning")
    assert changed_code(before, digests()) == ["toypack.parts"]


def test_what_changes_no_result_is_left_out(digests: Change) -> None:
    assert "toypack.parts" not in digests(left_out=("toypack.parts",))


def test_a_node_made_under_a_name_is_part_of_its_maker(digests: Change) -> None:
    assert set(digests("named")) == set(digests()) - {"toypack.types"}, "it takes no parameter of that type"


def test_functions_of_other_packages_have_no_code_here(package: Path) -> None:
    assert CodeSet("toypack", package).digests(importlib.import_module) == {}


def test_changed_modules_are_those_that_differ_came_or_went() -> None:
    assert changed_code({"a": "1", "b": "1", "c": "1"}, {"a": "1", "b": "2", "d": "1"}) == ["b", "c", "d"]


def test_digests_are_kept_until_a_file_changes(
    digests: Change, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept" / "code.json"
    train = importlib.import_module("toypack.nodes").train
    first = CodeSet("toypack", package, kept=kept)
    assert first.digests(train) == digests()
    first.save()
    with monkeypatch.context() as patched:
        patched.setattr(CodeSet, "_module", lambda self, module: pytest.fail("parsed again"))
        assert CodeSet("toypack", package, kept=kept).digests(train) == first.digests(train)
    (package / "late.py").write_text("def late(count):\n    return count + 9\n")
    changed = CodeSet("toypack", package, kept=kept).digests(train)
    assert changed_code(first.digests(train), changed) == ["toypack.late"]
    assert CodeSet("toypack", package, left_out=("toypack.late",), kept=kept).digests(train).keys() < changed.keys()
    kept.write_text("{ broken")
    assert CodeSet("toypack", package, kept=kept).digests(train) == changed


def test_functions_count_together_in_any_order(digests: Change, package: Path, tmp_path: Path) -> None:
    nodes = importlib.import_module("toypack.nodes")
    kept = tmp_path / "code.json"
    code = CodeSet("toypack", package, kept=kept)
    both = code.digests(nodes.train, nodes.other)
    assert set(both) == set(digests()) | set(digests("other"))
    assert both["toypack.maths"] not in {digests()["toypack.maths"], digests("other")["toypack.maths"]}
    assert code.digests(nodes.other, nodes.train) == both
    code.save()
    assert CodeSet("toypack", package, kept=kept).digests(nodes.train, nodes.other) == both
    assert CodeSet("toypack", package, kept=kept).digests(nodes.train) == digests()


def test_what_is_edited_after_the_import_does_not_run(digests: Change, package: Path) -> None:
    nodes = importlib.import_module("toypack.nodes")
    reached = digests()
    assert "toypack.late" not in sys.modules, "a function imports it"
    import_all(["toypack.never", *reached])
    (package / "late.py").write_text(FILES["late.py"].replace("count + 1", "count + 1000"))
    assert nodes.train(None) == 2 * (3 + 1) + 2 * 2
