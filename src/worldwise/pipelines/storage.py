"""Whether what a run reads is stored, and whether what it writes will fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kedro.io import AbstractVersionedDataset, DataCatalog
from kedro.pipeline import Pipeline

from worldwise.datasets.optional import OptionalEpisodesDataset, OptionalJSONDataset
from worldwise.pipelines.errors import InputError
from worldwise.pipelines.room import OTHER_DATA_ROOT, check_room

MAY_BE_ABSENT = (OptionalJSONDataset, OptionalEpisodesDataset)

MADE_BY = {
    "training_tasks": "data_collection",
    "pretrained_model": "data_collection",
    "base_model": "data_collection",
    "collected_episodes": "data_collection",
    "transitions": "data_collection",
    "rwml_transitions": "difficulty_subsampling",
    "difficulty_threshold": "difficulty_subsampling",
    "world_model": "rwml",
    "wm_sft_model": "wm_sft",
    "policy_model": "policy_rl",
    "evaluation_tasks": "evaluation",
    "base_evaluation": "evaluation",
    "held_out_transitions": "evaluation",
    "yardsticks": "evaluation",
    "rl_only_model": "rl_only",
    "wm_sft_policy_model": "wm_sft_then_rl",
}
"""Dataset -> the pipeline that makes it, for messages."""


def check_storage(
    pipeline: Pipeline,
    catalog: DataCatalog,
    run_params: Mapping[str, Any],
    blocks: Mapping[str, Any],
    data_root: str,
) -> None:
    """Checks the stored inputs of a run, the versions it names, the folders it writes to and the room in them.

    Of a run with `--only-missing-outputs` the plan decides what it reads and writes: see `check_planned`.

    Args:
        pipeline: what will run.
        catalog: where it reads and writes.
        run_params: as Kedro hands them to `before_pipeline_run`.
        blocks: validated parameters.
        data_root: the parameter as it was given.

    Raises:
        InputError: all findings.
    """
    if "://" in data_root:
        raise InputError(
            f"parameter data_root is {data_root!r}: results are stored in folders of this machine, so {OTHER_DATA_ROOT}"
        )
    findings = list(_versions(catalog, run_params))
    if not run_params.get("only_missing_outputs"):
        findings += missing_inputs(pipeline, catalog)
    runner = str(run_params.get("runner") or None)
    if runner != "None" and "SequentialRunner" not in runner:
        findings.append(
            "--runner takes SequentialRunner alone: a stage shares the machine among its own processes "
            "(compute.workers), and what is stored says which node made it"
        )
    if not run_params.get("only_missing_outputs"):
        findings += check_room(pipeline, catalog, blocks, data_root)
    if findings:
        raise InputError(*findings)


def check_planned(stale: Pipeline, catalog: DataCatalog, blocks: Mapping[str, Any], data_root: str) -> None:
    """The same of the nodes that a run with `--only-missing-outputs` makes anew: the others may lie on any disk.

    Raises:
        InputError: all findings.
    """
    findings = [*missing_inputs(stale, catalog), *check_room(stale, catalog, blocks, data_root)]
    if findings:
        raise InputError(*findings)


def _versions(catalog: DataCatalog, run_params: Mapping[str, Any]) -> Iterator[str]:
    for name, version in (run_params.get("load_versions") or {}).items():
        dataset = catalog.get(name)
        if dataset is None:
            yield f"--load-versions names the dataset {name!r}, which no catalog file has"
        elif isinstance(dataset, AbstractVersionedDataset) and not dataset.exists():
            yield f"--load-versions asks for {name}:{version}, which is not stored; there are: {_known(dataset)}"


def _known(dataset: AbstractVersionedDataset[Any, Any]) -> str:
    return ", ".join(dataset.list_versions(full_path=False)) or "none"


def missing_inputs(pipeline: Pipeline, catalog: DataCatalog) -> Iterator[str]:
    """One finding for each input of a pipeline that it does not make itself and that is not stored."""
    for name in sorted(pipeline.inputs()):
        if name.startswith("params:") or name == "parameters":
            continue
        dataset = catalog.get(name)
        if dataset is not None and not isinstance(dataset, MAY_BE_ABSENT) and not dataset.exists():
            maker = MADE_BY.get(name)
            first = f"run `kedro run --pipelines={maker}` first" if maker else "run the pipeline that makes it first"
            yield f"the dataset {name} has no stored version, and this run does not make it: {first}"
