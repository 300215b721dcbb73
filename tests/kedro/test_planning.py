"""What datasets read and write with counts as code of the nodes that they serve."""

from __future__ import annotations

import ast
import inspect
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from kedro.framework.project import pipelines
from kedro.framework.session import KedroSession

import worldwise
from worldwise.datasets.folder import FolderDataset
from worldwise.ledger.code import CodeSet, changed_code
from worldwise.ledger.plan import Surroundings
from worldwise.pipelines.planning import CHANGES_NO_RESULT, CODECS, surroundings

PACKAGE = Path(worldwise.__file__).parent


@pytest.fixture
def around(project: Path, tmp_path: Path) -> Surroundings:
    given = {"data_root": (tmp_path / "data").as_posix()}
    with KedroSession.create(project, save_on_close=False, env="test", runtime_params=given) as session:
        assert isinstance(session, KedroSession)
        context = session.load_context()
        return surroundings(context, context.catalog)


def test_a_repaired_reader_makes_stale_what_reads_with_it(around: Surroundings, tmp_path: Path) -> None:
    copy = tmp_path / "worldwise"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("assets", "__pycache__"))
    tables = copy / "episodes" / "tables.py"
    text = tables.read_text()
    begin = text.index("def transitions_from_table(")
    end = text.index("\n    return ", begin)
    tables.write_text(text[:end] + "\n    print('repaired')" + text[end:])
    nodes = {node.name: node for node in around.registered}

    def changed(name: str) -> list[str]:
        before, after = (
            replace(around, code=CodeSet("worldwise", root, CHANGES_NO_RESULT)).code_of(nodes[name])
            for root in (PACKAGE, copy)
        )
        return changed_code(before, after)

    assert changed("split_transitions") == ["worldwise.episodes.tables"]
    assert changed("extract_transitions") == [], "it only writes such a file"
    assert changed("prepare_base_model") == [], "it has nothing to do with any"


def test_all_nodes_of_the_project_are_known(around: Surroundings) -> None:
    assert {node.name for node in around.registered} == {
        node.name for pipeline in pipelines.values() for node in pipeline.nodes
    }


def test_no_dataset_makes_values_with_code_that_counts_nowhere(around: Surroundings) -> None:
    kinds = {type(around.catalog.get(name)) for pipeline in pipelines.values() for name in pipeline.datasets()}
    own = {base for kind in kinds for base in kind.__mro__ if base.__module__.startswith("worldwise.datasets")}
    assert own
    for kind in own:
        # Folders travel as paths: nothing stands between the node and the files.
        if not issubclass(kind, (FolderDataset, *CODECS)):
            assert [name for name in _imported(kind) if not name.startswith(CHANGES_NO_RESULT)] == [], kind


def _imported(kind: type) -> list[str]:
    """The modules of this package that the module of a class imports."""
    tree = ast.parse(inspect.getsource(sys.modules[kind.__module__]))
    found = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return [name for name in found if name.startswith("worldwise.")]
