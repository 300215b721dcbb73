"""The Markdown summary: sentences computed from counts, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from worldwise.reports.render import environment
from worldwise.reports.results import ALL_SPLITS, Results, label, ordered
from worldwise.reports.statements import compare, percent, signed, with_interval, world_model_sentence
from worldwise.stages.difficulty import DifficultyReport

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Header and rows of cells."""

WORLD_MODEL_PAIRS = (("base", "rwml"), ("base", "wm_sft"), ("rwml", "policy"))


def markdown_summary(results: Results) -> str:
    """The summary as GitHub-flavoured Markdown."""
    template = environment(escape=False).get_template("summary.md.jinja")
    return template.render(
        facts=[(key, one_line(value)) for key, value in results.facts.items()],
        sentences=sentences(results),
        success=markdown_table(success_table(results)),
        differences=markdown_table(difference_table(results)),
        by_type=[(title, markdown_table(table)) for title, table in type_tables(results)],
        behaviour=markdown_table(behaviour_table(results)),
        world_model=markdown_table(world_model_table(results)) if results.world_model else "",
        world_model_kinds=markdown_table(world_model_kinds_table(results)) if results.world_model else "",
        difficulty=markdown_table(difficulty_table(results)) if results.difficulty else "",
        stages=markdown_table(stage_table(results)) if results.stages else "",
    )


def sentences(results: Results) -> list[str]:
    """Every statement that the stored numbers allow, success over all splits together."""
    said = [comparison.sentence() for comparison in compare(results) if comparison.split == ALL_SPLITS]
    said += [text for pair in WORLD_MODEL_PAIRS if (text := world_model_sentence(results, *pair))]
    if results.difficulty:
        said.append(_easy_sentence(results.difficulty))
    return said


def success_table(results: Results) -> Table:
    """One row per model, one column per split and temperature."""
    cells = results.cells()
    header = ["Model", *(f"{split}, T = {temperature}" for split, temperature in cells)]
    rows = []
    for name in ordered(results.acting):
        row = [label(name)]
        for split, temperature in cells:
            score = results.shown(name, split, temperature)
            row.append(with_interval(score.success) if score else "-")
        rows.append(row)
    return header, rows


def difference_table(results: Results) -> Table:
    """One row per question, split and temperature: both shares, their difference and its interval."""
    rows = [
        [
            item.question,
            item.split,
            item.temperature,
            percent(item.before.share),
            percent(item.after.share),
            f"{signed(item.gap)} [{signed(item.low)}, {signed(item.high)}]",
            item.verdict,
        ]
        for item in compare(results)
    ]
    return ["Question", "Split", "T", "Before", "After", "Points [95 % interval]", "Verdict"], rows


def type_tables(results: Results) -> list[tuple[str, Table]]:
    """Per split and temperature: one row per task type, one column per model."""
    found: list[tuple[str, Table]] = []
    for split, temperature in results.cells():
        scores = {
            name: score
            for name in ordered(results.acting)
            if (score := results.shown(name, split, temperature)) is not None
        }
        types = sorted({kind for score in scores.values() for kind in score.success_by_type})
        rows = [
            [
                kind,
                *(
                    with_interval(score.success_by_type[kind]) if kind in score.success_by_type else "-"
                    for score in scores.values()
                ),
            ]
            for kind in types
        ]
        found.append((f"{split}, T = {temperature}", (["Type", *map(label, scores)], rows)))
    return found


def behaviour_table(results: Results) -> Table:
    """One row per model, split and temperature."""
    header = ["Model", "Split", "T", "Turns", "Turns (solved)", "Invalid", "Nothing happens", "Repeated", "Wasted"]
    rows = []
    for name in ordered(results.acting):
        for split, row in results.acting[name].scores.items():
            for temperature, score in row.items():
                rates = (score.invalid_rate, score.nothing_rate, score.repeated_rate, score.wasted_rate)
                turns = [f"{score.mean_turns:.1f}", f"{score.mean_turns_solved:.1f}"]
                rows.append([label(name), split, temperature, *turns, *map(percent, rates)])
    return header, rows


def world_model_table(results: Results) -> Table:
    """One row per model and split, and over all."""
    header = ["Model", "Transitions", "Similarity", "Text ratio", "Exact", "With tags"]
    rows = []
    for name in ordered(results.world_model):
        report = results.world_model[name]
        for split, score in [("all", report.overall), *report.by_split.items()]:
            rows.append(
                [
                    label(name),
                    f"{split} ({score.exact.count})",
                    f"{score.similarity:.3f}",
                    f"{score.text_ratio:.3f}",
                    with_interval(score.exact),
                    percent(score.parsed.share),
                ]
            )
    return header, rows


def world_model_kinds_table(results: Results) -> Table:
    """One row per kind of transition: similarity and exact share of every model."""
    names = ordered(results.world_model)
    kinds = sorted({kind for report in results.world_model.values() for kind in report.by_kind})
    rows = []
    for kind in kinds:
        row = [kind]
        for name in names:
            score = results.world_model[name].by_kind.get(kind)
            row.append(f"{score.similarity:.3f} / {with_interval(score.exact)}" if score else "-")
        rows.append(row)
    return ["Kind", *(f"{label(name)} (similarity / exact)" for name in names)], rows


def difficulty_table(results: Results) -> Table:
    """What cleaning and subsampling did."""
    report = results.difficulty
    assert report is not None
    values: list[tuple[str, str]] = [
        *((f"cleaning: {rule}", f"{count:g}") for rule, count in results.transition_counts.items()),
        ("tasks (main / auxiliary)", f"{report.tasks_main} / {report.tasks_auxiliary}"),
        ("transitions (main / auxiliary)", f"{report.transitions_main} / {report.transitions_auxiliary}"),
        ("tries per transition", str(report.tries)),
        ("tau_d / tau_easy", f"{report.tau_d:g} / {report.tau_easy:g}"),
        ("easy share", f"{percent(report.easy_share)} ({'in' if report.in_band else 'outside'} the wanted band)"),
        ("mean pass rate / exact / with tags", " / ".join(map(percent, _rates(report)))),
        ("kept (easy among them)", f"{report.kept} ({report.kept_easy})"),
        *((f"easy: {kind}", f"{easy} of {count}") for kind, (easy, count) in report.easy_by_kind.items()),
    ]
    return ["What", "Value"], [list(value) for value in values]


def stage_table(results: Results) -> Table:
    """The summary numbers of every stage."""
    rows = [
        [stage, name, f"{value:.4g}"]
        for stage, numbers in results.stages.items()
        for name, value in sorted(numbers.items())
    ]
    return ["Stage", "Number", "Value"], rows


def markdown_table(table: Table) -> str:
    """A table in Markdown; bars and line breaks in cells are made harmless."""
    header, rows = table
    lines = [_line(header), _line(["---"] * len(header)), *(_line(row) for row in rows)]
    return "\n".join(lines)


def one_line(text: str) -> str:
    """The text on one line, with Markdown's table bars escaped."""
    return " ".join(text.split()).replace("|", "\\|")


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(one_line(cell) for cell in cells) + " |"


def _rates(report: DifficultyReport) -> tuple[float, float, float]:
    return report.mean_pass_rate, report.exact_rate, report.parse_rate


def _easy_sentence(report: DifficultyReport) -> str:
    where = "inside" if report.in_band else "outside"
    return (
        f"Subsampling: {percent(report.easy_share)} of {report.transitions_main} transitions were easy at tau_d = "
        f"{report.tau_d:g} and pass rate > {report.tau_easy:g} ({where} the wanted band); {report.kept} were kept."
    )
