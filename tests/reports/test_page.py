"""The HTML report: self-contained, escaped, and showing what the episodes hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from worldwise.episodes.record import Episode
from worldwise.reports.browser import (
    SHELF_CHARACTERS,
    EpisodeView,
    Shelf,
    choose,
    evaluation_shelf,
    token_texts,
    training_shelf,
    view,
)
from worldwise.reports.charts import Line, bar_chart, line_chart, short, ticks
from worldwise.reports.figures import figures
from worldwise.reports.page import html_report
from worldwise.reports.results import Results
from worldwise.stages.estimators import EstimatorConfig
from worldwise.stages.intervals import proportion


def decode(ids: Sequence[int]) -> str:
    return "".join("<b>&" if number == 3 else f"[{number}]" for number in ids)


def shelf(*views: EpisodeView) -> Shelf:
    return Shelf("Some episodes", "all of them", views)


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
    page = html_report(results, [shelf(view(episode, decode, [0.5, -0.25], nasty))])
    assert nasty not in page
    found = Collector()
    found.feed(page)
    assert found.open == []
    assert {"svg", "table", "details"} <= set(found.tags)
    assert not {"script", "link", "img", "iframe"} & set(found.tags)
    assert "<b>&" not in page
    assert not [value for name, value in found.attributes if name in ("src", "onclick", "onload")]
    places = {value for name, value in found.attributes if name == "id"}
    links = [value or "" for name, value in found.attributes if name == "href"]
    assert links
    assert {link.removeprefix("#") for link in links} <= places
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


def test_greedy_tokens_have_no_note(episode: Episode) -> None:
    turn = episode.turns[0]
    greedy = replace(turn, logprobs=turn.logprobs * 0, entropies=turn.entropies * -0.0)
    shown = view(replace(episode, turns=(turn, greedy)), decode)
    assert [token.note for token in shown.turns[0].tokens] == [
        "log-prob -0.50, entropy 0.25",
        "log-prob -1.00, entropy 0.75",
    ]
    assert [token.note for token in shown.turns[1].tokens] == ["", ""]


def test_a_character_of_several_tokens_is_shown_once() -> None:
    raw = {1: b"a", 2: b"\xc3", 3: b"\xa9", 4: b"b"}

    def read(ids: Sequence[int]) -> str:
        return b"".join(raw[number] for number in ids).decode(errors="replace")

    assert token_texts([1, 2, 3, 4], read) == ["a", "", "é", "b"]
    # One that is never finished shows as what it is.
    assert token_texts([1, 2], read) == ["a", "\N{REPLACEMENT CHARACTER}"]
    assert token_texts([], read) == []


def test_training_shelf_recomputes_the_advantages_of_the_last_iteration(episode: Episode) -> None:
    won = tuple(replace(turn, reward=float(turn.index == 1)) for turn in episode.turns)
    last = [
        replace(episode, episode_id="idle", group_id="other", iteration=3),
        replace(episode, episode_id="a", iteration=3),
        replace(episode, episode_id="b", iteration=3, success=True, turns=won),
        replace(episode, episode_id="broken", iteration=3, reward_valid=False),
    ]
    estimator = EstimatorConfig(algorithm="grpo", normalize="none")
    before = [replace(episode, iteration=2), replace(episode, iteration=2, success=True, turns=won)]
    shown = training_shelf("RL alone", iter([*before, *last]), estimator, str.strip, decode, 10)
    found = {item.episode.episode_id: [turn.advantage for turn in item.turns] for item in shown.views}
    assert found == {"a": [-0.5, -0.5], "b": [0.5, 0.5], "idle": [0.0, 0.0], "broken": [0.0, 0.0]}
    assert [item.episode.episode_id for item in shown.views] == ["b", "a", "idle", "broken"]
    assert [item.note for item in shown.views[:3]] == [
        "1 of 2 in its group solved",
        "1 of 2 in its group solved",
        "0 of 1 in its group solved",
    ]
    assert shown.title == "Last iteration of policy RL: RL alone"
    assert shown.note.startswith("4 of 4 episodes of the last iteration (number 3")
    assert "2 of them taught nothing" in shown.note
    few = training_shelf("RL alone", last, estimator, str.strip, decode, 1)
    assert [item.episode.episode_id for item in few.views] == ["b"]


def test_training_shelf_on_the_page(results: Results, episode: Episode) -> None:
    won = tuple(replace(turn, reward=float(turn.index == 1)) for turn in episode.turns)
    group = [episode, replace(episode, episode_id="b", success=True, turns=won)]
    estimator = EstimatorConfig(algorithm="grpo", normalize="none")
    page = html_report(results, [training_shelf("RL alone", group, estimator, str.strip, decode, 10)])
    assert page.count("reward 0, advantage -0.500") == 2
    assert page.count("reward 1, advantage +0.500") == 1
    assert page.count('<span class="up" title="log-prob -0.50, entropy 0.25">') == 2
    assert page.count("prompt, 2 tokens") == page.count("prompt, 2 more tokens") == 2
    assert page.count("[1][2]</pre>") == 4
    assert "1 of 2 in its group solved" in page


def test_evaluation_shelf_prefers_episodes_with_predictions(episode: Episode) -> None:
    bare = replace(episode, turns=tuple(replace(turn, predictions=()) for turn in episode.turns))
    mixed = evaluation_shelf("Base", [bare, episode, bare], decode, 5)
    assert [item.episode for item in mixed.views] == [episode]
    assert "1 of 3 episodes" in mixed.note
    assert "prediction" in mixed.note
    plain = evaluation_shelf("Base", [bare, bare], decode, 5)
    assert len(plain.views) == 2
    assert "prediction" not in plain.note
    assert evaluation_shelf("Base", [], decode, 5).views == ()


def test_a_shelf_stays_below_its_size(results: Results, episode: Episode) -> None:
    def long(ids: Sequence[int]) -> str:
        return "word " * 2000

    many = [replace(episode, episode_id=str(number)) for number in range(40)]
    shown = evaluation_shelf("Base", many, long, 40)
    assert 1 < len(shown.views) < 40
    empty = len(html_report(results, []))
    assert 0.8 * SHELF_CHARACTERS < len(html_report(results, [shown])) - empty < 1.1 * SHELF_CHARACTERS
    # Ordinary texts are estimated well, too.
    plain = evaluation_shelf("Base", many, decode, 40)
    assert len(plain.views) == 40
    one = evaluation_shelf("Base", [episode], lambda ids: "word " * 100_000, 40)
    assert len(one.views) == 1


def test_predictions_stand_beside_what_happened(results: Results, episode: Episode) -> None:
    shown = view(episode, decode)
    # Equal up to white space is right.
    assert [prediction[2] for turn in shown.turns for prediction in turn.predictions] == [True, False]
    page = html_report(results, [shelf(shown)])
    assert page.count("<b>Predicted, exactly (similarity 0.500)</b>You see a  mug.</p>") == 1
    assert page.count("<b>Predicted (similarity 0.500)</b>") == 1
    assert 'class="observation right"' in page
    assert 'class="observation wrong"' in page


def test_page_without_episodes_says_so(results: Results) -> None:
    assert "No episodes were stored." in html_report(results, [shelf()])


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
    line = Line(nasty, [(0, 0.0), (10, 0.4)], "#123456", dashed=True)
    svg = line_chart([line, Line("empty", [], "red")], nasty, "step")
    assert nasty not in svg
    # 504 pixels from 44 on are 10 steps; 194 pixels from 204 upwards are a range of 0.4.
    assert "44.0,204.0 548.0,10.0" in svg
    assert svg.count("<polyline") == svg.count("stroke-dasharray") == 1
    for mark in ("0", "0.1", "0.4", "4", "10"):
        assert f">{mark}</text>" in svg
    assert line_chart([Line("empty", [], "red")], "t", "step") == ""


def test_steps_are_counted_in_whole_numbers() -> None:
    svg = line_chart([Line("short", [(0, 0.5), (1, 1.0)], "red")], "t", "step")
    assert re.findall(r'text-anchor="middle">([^<]*)</text>', svg) == ["0", "1", "step"]


def test_bars_show_share_and_interval(nasty: str) -> None:
    value = proportion([True, False])
    bars = bar_chart(["a", nasty], {"m": [value, None]}, {"m": "#123456"}, nasty)
    assert nasty not in bars
    assert bars.count("<rect") == 1
    assert "a, m: 50.0 % (1/2)" in bars
    # 308 pixels from 204 on are the range from 0 to 1.
    assert f"M{204 + 308 * value.low:.1f} " in bars
    assert f"H{204 + 308 * value.high:.1f}" in bars
    assert 'width="154.0"' in bars
    assert bar_chart([], {"m": []}, {"m": "red"}, "t") == ""


@pytest.mark.parametrize(
    ("low", "high", "marks"),
    [
        (0.0, 0.4, [0.0, 0.1, 0.2, 0.3, 0.4]),
        (0.0, 0.71, [0.0, 0.2, 0.4, 0.6, 0.8]),
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 26.0, [0.0, 10.0, 20.0, 30.0]),
        (-0.3, 0.9, [-0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0]),
        (0.0, 0.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
    ],
)
def test_ticks_are_round_and_cover_the_range(low: float, high: float, marks: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(marks)


def test_scripted_play_stands_at_every_temperature(results: Results) -> None:
    assert results.cell("random", "valid_seen", "0.4") is None
    shown = results.shown("random", "valid_seen", "0.4")
    assert shown == results.cell("random", "valid_seen", "0")
    assert results.shown("base", "valid_seen", "0.4") is None
    assert results.shown("oracle", "valid_seen", "0") is None


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
