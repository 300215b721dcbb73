"""The HTML report: self-contained, escaped, and showing what the episodes hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from worldwise.episodes.record import Episode
from worldwise.reports.browser import choose, training_views, view
from worldwise.reports.charts import bar_chart, line_chart, nice_ceiling, short
from worldwise.reports.figures import figures
from worldwise.reports.page import html_report
from worldwise.reports.results import Results
from worldwise.stages.intervals import proportion
from worldwise.stages.policy_rows import EstimatorConfig


def decode(ids: Sequence[int]) -> str:
    return "".join("<b>&" if number == 3 else f"[{number}]" for number in ids)


class Collector(HTMLParser):
    """Collects tags, attributes and the nesting of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_self_contained_and_escapes_everything(results: Results, episode: Episode, nasty: str) -> None:
    page = html_report(results, {"Last iteration": [view(episode, decode, [0.5, -0.25])]})
    assert nasty not in page
    found = Collector()
    found.feed(page)
    assert found.open == []
    assert {"svg", "table", "details"} <= set(found.tags)
    assert not {"script", "link", "img", "iframe"} & set(found.tags)
    assert "<b>&" not in page
    assert not [value for name, value in found.attributes if name in ("src", "href", "onclick", "onload")]
    assert not re.search(r"https?://|url\(|@import", page)


def test_browser_shows_tokens_by_what_pulls_at_them(episode: Episode) -> None:
    shown = view(episode, decode, [0.5, -0.25])
    assert [token.style for token in shown.turns[0].tokens] == ["up", "up"]
    assert [token.style for token in shown.turns[1].tokens] == ["down", "down"]
    assert [token.text for token in shown.turns[0].tokens] == ["<b>&", "[4]"]
    assert shown.turns[0].context == "[1][2]"
    assert {token.style for turn in view(episode, decode).turns for token in turn.tokens} == {"sampled"}
    with pytest.raises(ValueError, match="one per turn"):
        view(episode, decode, [0.5])


def test_training_views_recompute_the_advantages_of_the_last_iteration(episode: Episode) -> None:
    won = tuple(replace(turn, reward=float(turn.index == 1)) for turn in episode.turns)
    last = [
        replace(episode, episode_id="a", iteration=3),
        replace(episode, episode_id="b", iteration=3, success=True, turns=won),
    ]
    estimator = EstimatorConfig(algorithm="grpo", normalize="none")
    shown = training_views([replace(episode, iteration=2), *last], estimator, str.strip, decode, 10)
    found = {item.episode.episode_id: [turn.advantage for turn in item.turns] for item in shown}
    assert found == {"a": [-0.5, -0.5], "b": [0.5, 0.5]}


def test_predictions_stand_beside_what_happened(results: Results, episode: Episode) -> None:
    shown = view(episode, decode)
    # Equal up to white space is right.
    assert [prediction[2] for turn in shown.turns for prediction in turn.predictions] == [True, False]
    page = html_report(results, {"x": [shown]})
    assert page.count("Predicted (similarity 0.500)") == 2
    assert 'class="observation right"' in page
    assert 'class="observation wrong"' in page


def test_page_without_episodes_says_so(results: Results) -> None:
    assert "No episodes were stored." in html_report(results, {"none": []})


def test_choice_shows_solved_and_unsolved_of_every_type(episode: Episode) -> None:
    episodes = [
        replace(episode, episode_id=f"{kind}{number}{solved}", task_type=kind, success=solved)
        for kind in ("pick", "look")
        for number in range(5)
        for solved in (False, True)
    ]
    chosen = choose(episodes, 4)
    assert {(item.task_type, item.success) for item in chosen} == {
        ("pick", True),
        ("pick", False),
        ("look", True),
        ("look", False),
    }
    assert len(choose(episodes, 100)) == 20
    assert choose(episodes[:3], 2) == choose(episodes[:3], 2)


def test_charts_scale_and_escape(nasty: str) -> None:
    svg = line_chart({nasty: [(0, 0.0), (10, 0.4)], "empty": []}, {nasty: "#123456"}, nasty, "step")
    assert nasty not in svg
    # 0.4 of a range up to 0.5 over 196 pixels from 206 upwards.
    assert "48.0,206.0 548.0,49.2" in svg
    assert line_chart({"empty": []}, {}, "t", "step") == ""
    bars = bar_chart(["a", "b"], {"m": [proportion([True, False]), None]}, {"m": "#123456"}, "t")
    assert bars.count("<rect") == 1
    assert "50.0 % (1/2)" in bars


@pytest.mark.parametrize(
    ("value", "ceiling"), [(0.0, 1.0), (0.3, 0.5), (0.21, 0.25), (1.0, 1.0), (7.0, 10.0), (230.0, 250.0)]
)
def test_nice_ceiling(value: float, ceiling: float) -> None:
    assert nice_ceiling(value) == pytest.approx(ceiling)


def test_long_names_lose_their_middle() -> None:
    assert short("pick_and_place_simple", 9) == "pick…mple"
    assert short("look", 9) == "look"


def test_figures_draw_what_there_is(results: Results) -> None:
    drawn = figures(results)
    assert {
        "success",
        "reward",
        "entropy",
        "mixed_groups",
        "success_by_type",
        "success_by_model",
        "world_model",
    } == set(drawn)
    assert [trace.name for trace in drawn["success"].data] == ["RWML: guard success", "RWML, then RL: success"]
    bar = drawn["success_by_model"].data[1]
    assert (bar.name, bar.y[0]) == ("Base", 0.2)
    assert bar.error_y.array[0] == pytest.approx(results.acting["base"].scores["valid_seen"]["0"].success.high - 0.2)
