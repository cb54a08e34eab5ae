"""The page is safe and readable: hostile texts stay texts, nothing is fetched."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_run import GS1

from harness.redact import Redactor
from harness.report import build_report, parse_report
from harness.report_files import drawn_files
from harness.report_model import Report
from harness.report_render import render_html, render_markdown
from harness.store import read_jsonl

HOSTILE = (
    "</pre></style></script></svg><script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)> ' onclick='x",
    "{{ 7 * 7 }} {% raw %} #} \\n | a | b |\n```\n# heading\n<!-- ",
    "\x00 \x1b[31m \u202e reversed \u2028 $x^2$ &lt;b&gt;",
)
SECRET = "tml-a1b2c3d4e5f6a7b8"


@pytest.fixture
def run(complete_original: Path, tmp_path: Path) -> Path:
    shutil.copytree(complete_original, tmp_path / "run")
    shutil.copytree(complete_original.parent / "rows", tmp_path / "rows")
    return tmp_path / "run"


def report_of(run: Path, environ: dict[str, str] | None = None) -> Report:
    return build_report(run, run.parent / "rows", Redactor.from_environment(environ or {}))


class Outline(HTMLParser):
    """Collects tags with the names of their attributes, ids, headings and addresses."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def values(self, name: str) -> list[str]:
        return [value for _, found, value in self.attributes if found == name]


def replaced(value: Any, change: Callable[[str], str]) -> Any:
    """Change every text of a document but names of states, which the model fixes."""
    if isinstance(value, str):
        return value if value in ("pass", "fail", "open") else change(value)
    if isinstance(value, dict):
        return {key: replaced(item, change) for key, item in value.items()}
    return [replaced(item, change) for item in value] if isinstance(value, list | tuple) else value


@cache
def small_report(folder: Path) -> Report:
    return report_of(folder)


@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
    | st.sampled_from(HOSTILE[:3])
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_no_text_of_a_run_becomes_markup(complete_original: Path, text: str) -> None:
    report = small_report(complete_original)
    changed = parse_report(replaced(report.model_dump(), lambda found: f"{found}{text}"))
    page = render_html(changed, drawn=False)
    assert Outline(page).tags == Outline(render_html(report, drawn=False)).tags, (
        f"the page has other elements with {text!r} in its texts"
    )
    lines, plain = outside_fences(render_markdown(changed)), outside_fences(render_markdown(report))
    headings = [line.split(" ")[0] for line in lines if line.startswith("#")]
    assert headings == [line.split(" ")[0] for line in plain if line.startswith("#")]
    assert [columns(line) for line in lines] == [columns(line) for line in plain]
    assert not any("<" in line for line in lines), "a tag outside a code block"


def outside_fences(text: str) -> list[str]:
    """Return Markdown's lines but those of code blocks, which only their own fence closes."""
    kept: list[str] = []
    fence = ""
    for line in text.split("\n"):
        if fence:
            fence = "" if line == fence else fence
        elif found := re.match(r"(`{3,})text$", line):
            fence = found[1]
        else:
            kept.append(line)
    assert not fence, "a code block is not closed"
    return kept


def columns(line: str) -> int:
    return len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) if line.startswith("|") else 0


def test_hostile_completions_are_shown_as_text(run: Path) -> None:
    path = run / f"predictions/{GS1}.jsonl"
    rows = [dict(row) for row in read_jsonl(path)]
    for row, text in zip(rows, HOSTILE, strict=False):
        row |= {"text": text, "prediction": text, "reference": text}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = drawn_files(report_of(run))["report.html"].decode()
    outline = Outline(page)
    assert sum(tag == "script" for tag, _ in outline.tags) == 1, "only the filter's own script"
    assert not any(tag == "img" for tag, _ in outline.tags)
    assert not any(name.startswith("on") for _, name, _ in outline.attributes)
    assert "\u202e" not in page, "a text may not turn the direction of what follows"
    assert "\x00" not in page


def test_a_hostile_metric_is_drawn_as_text(complete_original: Path) -> None:
    document = small_report(complete_original).model_dump()
    document["scores"][0]["metric"] = HOSTILE[0]
    document["criteria"][0]["metric"] = HOSTILE[0]
    page = render_html(parse_report(document))
    assert sum(tag == "script" for tag, _ in Outline(page).tags) == 1


def test_no_secret_and_no_path_of_the_machine_is_in_it(run: Path) -> None:
    path = run / f"predictions/{GS1}.jsonl"
    rows = [dict(row) for row in read_jsonl(path)]
    rows[0] |= {"text": f"the key is {SECRET} and hunter2hunter2", "prediction": SECRET}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = json.loads((run / "result.json").read_text())
    result["summary"] = "It read /srv/people/ann/project/file.py with hunter2hunter2."
    (run / "result.json").write_text(json.dumps(result))
    files = drawn_files(report_of(run, {"MY_API_KEY": "hunter2hunter2"}))
    for name, data in files.items():
        text = data.decode()
        for found in (SECRET, "hunter2hunter2", "/srv/people", str(run.parent)):
            assert found not in text, f"{name} holds {found}"
        assert "[redacted:MY_API_KEY]" in text.replace("\\", ""), (
            f"{name} does not say what it left out"
        )


def test_nothing_is_fetched_and_no_other_script_may_run(complete_original: Path) -> None:
    page = (complete_original / "report.html").read_text(encoding="utf-8")
    outline = Outline(page)
    outside = [value for value in outline.values("href") if not value.startswith("#")]
    assert outside == []
    assert outline.values("src") == []
    assert not re.search(r"@import|url\((?!#)", page)
    policy = next(value for value in outline.values("content") if "default-src" in value)
    assert policy.startswith("default-src 'none'")
    assert "'unsafe-inline'" not in policy.partition("script-src")[2]


def test_headings_tables_and_figures_can_be_found_by_a_screen_reader(
    complete_original: Path,
) -> None:
    outline = Outline((complete_original / "report.html").read_text(encoding="utf-8"))
    levels = [int(tag[1]) for tag, _ in outline.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels.count(1) == 1
    jumps = [pair for pair in pairwise(levels) if pair[1] > pair[0] + 1]
    assert jumps == [], f"headings skip a level: {jumps}"
    assert ("html", "lang", "en") in outline.attributes
    without_scope = [names for tag, names in outline.tags if tag == "th" and "scope" not in names]
    assert without_scope == []
    ids = outline.values("id")
    assert len(ids) == len(set(ids)), "an id is there twice"
    pictures = [names for tag, names in outline.tags if tag == "div" and "role" in names]
    assert all("aria-label" in names for names in pictures)
    assert sum(tag == "svg" for tag, _ in outline.tags) == outline.values("role").count("img")


def channels(color: str) -> list[float]:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def contrast(one: str, other: str) -> float:
    """Contrast ratio of WCAG 2."""
    light = sorted(
        sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), channels(color), strict=True))
        for color in (one, other)
    )
    return (light[1] + 0.05) / (light[0] + 0.05)


def test_every_colour_of_text_can_be_read_on_every_ground() -> None:
    css = (Path(__file__).parents[2] / "harness/templates/report.css").read_text()
    schemes = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    assert len(schemes) == 3, "light, dark and print"
    for scheme in schemes:
        colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", scheme))
        for ground in ("paper", "panel"):
            for ink in ("ink", "muted", "link", "good", "bad", "open"):
                ratio = contrast(colors[ink], colors[ground])
                assert ratio >= 4.5, f"{ink} on {ground}: {ratio:.2f}, needed 4.5"
        for arm in ("arm-1", "arm-2", "arm-3", "arm-4"):
            ratio = contrast(colors[arm], colors["paper"])
            assert ratio >= 3, f"{arm} on paper: {ratio:.2f}, needed 3"
