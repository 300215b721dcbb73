"""The Markdown summary and the sentences computed for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from worldwise.reports.results import ALL_SPLITS, Results
from worldwise.reports.statements import compare, with_interval
from worldwise.reports.summary import (
    difference_table,
    markdown_summary,
    markdown_table,
    sentences,
    success_table,
)
from worldwise.stages.intervals import proportion


def test_comparisons_say_what_the_intervals_allow(results: Results) -> None:
    verdicts = {(item.first, item.second, item.split): item.verdict for item in compare(results)}
    assert verdicts["base", "policy", "valid_seen"] == "better, outside chance"
    assert verdicts["rl_only", "policy", "valid_seen"] == "no difference these games can show"
    assert verdicts["base", "rwml", "valid_unseen"] == "no difference these games can show"
    swapped = replace(results, acting={"base": results.acting["policy"], "policy": results.acting["base"]})
    assert {item.verdict for item in compare(swapped)} == {"worse, outside chance"}


def test_sentences_hold_the_numbers(results: Results) -> None:
    said = sentences(results)
    # 40 + 38 of 400 against 120 + 100 of 400.
    assert any("(all splits, T = 0): 19.5 % -> 55.0 %, +35.5 points" in sentence for sentence in said)
    assert not any("valid_seen" in sentence for sentence in said)
    assert any("exact 25.0 % -> 75.0 % (outside chance, 20 transitions)" in sentence for sentence in said)
    assert any("28.0 % of 900 transitions were easy" in sentence for sentence in said)


def test_one_model_alone_is_compared_with_nothing(results: Results) -> None:
    alone = Results(acting={"base": results.acting["base"]})
    assert sentences(alone) == []
    assert "nothing to compare" in markdown_summary(alone)


def test_splits_are_taken_together_only_where_all_were_played(results: Results) -> None:
    found = results.success("base", ALL_SPLITS, "0")
    assert found is not None
    assert (found.successes, found.count) == (78, 400)
    scores = {"valid_seen": results.acting["base"].scores["valid_seen"]}
    partial = replace(
        results, acting={**results.acting, "base": results.acting["base"].model_copy(update={"scores": scores})}
    )
    assert partial.success("base", ALL_SPLITS, "0") is None


def test_differences_have_a_row_per_question_and_cell(results: Results) -> None:
    header, rows = difference_table(results)
    # Four questions can be answered, each for two splits and both together.
    assert len(rows) == 12
    first = dict(zip(header, rows[1], strict=True))
    assert (first["Split"], first["Before"], first["After"]) == ("valid_seen", "20.0 %", "60.0 %")
    assert first["Points [95 % interval]"].startswith("+40.0 [+30.")


def test_interval_text() -> None:
    assert with_interval(proportion([True] * 5 + [False] * 5)) == "50.0 % [23.7, 76.3] (5/10)"


def test_success_table_orders_models_and_keeps_yardsticks(results: Results) -> None:
    header, rows = success_table(results)
    assert header == ["Model", "valid_seen, T = 0", "valid_unseen, T = 0"]
    assert [row[0] for row in rows] == ["Random play", "Base", "RWML", "RL alone", "RWML, then RL"]
    assert rows[1][1].startswith("20.0 % [")


def test_cells_that_were_not_measured_stay_empty(results: Results) -> None:
    scores = {"valid_seen": results.acting["base"].scores["valid_seen"]}
    partial = results.acting["base"].model_copy(update={"scores": scores})
    _, rows = success_table(replace(results, acting={**results.acting, "base": partial}))
    assert rows[1][2] == "-"


def test_tables_survive_bars_and_line_breaks() -> None:
    text = markdown_table((["a"], [["one|two\nthree"]]))
    assert text.splitlines()[-1] == "| one\\|two three |"


@pytest.mark.parametrize(
    "part",
    [
        "## Success",
        "### Differences",
        "## Behaviour",
        "## World model",
        "## Data for the world model",
        "## Stages",
        "25 |",
        "| go |",
    ],
)
def test_summary_has_every_part(results: Results, part: str) -> None:
    text = markdown_summary(results)
    assert part.replace("25 |", "670 (25) |") in text
    widths = {line.count("|") - line.count("\\|") for line in text.splitlines() if line.startswith("| Model | valid")}
    assert widths == {4}
