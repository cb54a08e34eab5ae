"""``report.html`` and ``report.md`` from the report's model: words and layout, no own numbers.

The page is one file: style, script and figures are inside, and its content policy lets nothing be
fetched and no other script run. Every text of a run is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from harness.report_figures import PANELS, curve_figures, interval_figures
from harness.report_model import Report

TEMPLATES = Path(__file__).parent / "templates"
SECTIONS = (
    ("verdict", "Verdict"),
    ("intervals", "Intervals"),
    ("training", "Training"),
    ("gates", "Gates"),
    ("change", "What would change it"),
    ("examples", "Examples"),
    ("deviations", "Deviations"),
    ("feasibility", "Feasibility"),
    ("provenance", "Provenance"),
)
"""Sections of the page in their order: id and name."""
AXES = ("step", "rollouts")
_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
_MARKDOWN = re.compile(r"([\\`*\[\]|])")
_FENCE = re.compile(r"^[ \t>]*(`{3,})", re.MULTILINE)


def render_html(report: Report, *, drawn: bool = True) -> str:
    """Return the page.

    Args:
        report: the model.
        drawn: False leaves every figure empty, which is quick: for comparing all but the figures.
    """
    script = _asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment(autoescape=True)
        .get_template("report.html.j2")
        .render(
            report=report,
            css=_asset("report.css"),
            script=script,
            script_hash=f"sha256-{digest}",
            sections=SECTIONS,
            panels=PANELS,
            **_figures(report, drawn=drawn),
        )
    )


def _figures(report: Report, *, drawn: bool) -> dict[str, Any]:
    intervals = interval_figures(report, drawn=drawn)
    return {
        "figures": {drawing.name: drawing for drawing in intervals},
        "curves": [(axis, curve_figures(report, axis, drawn=drawn)) for axis in AXES],
    }


def without_figures(page: str) -> str:
    """Return a page without its figures' drawings, as :func:`render_html` gives it undrawn."""
    return re.sub(r"<svg .*?</svg>", "", page, flags=re.DOTALL)


def render_markdown(report: Report) -> str:
    """Return the Markdown text."""
    template = _environment(autoescape=False).get_template("report.md.j2")
    return template.render(report=report, panels=PANELS)


def _asset(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _environment(*, autoescape: bool) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=autoescape,
        finalize=None if autoescape else _as_line,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(FILTERS)
    return environment


def number(value: float | None) -> str:
    """Return a number to four digits."""
    if value is None:
        return "not measured"
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def score(value: float) -> str:
    """Return a score or a half-width to four decimals."""
    return f"{value:.4f}"


def signed(value: float | None) -> str:
    """Return an effect to four decimals, with its sign."""
    return "none" if value is None else f"{value:+.4f}"


def signed_short(value: float) -> str:
    """Return an effect as short as it is exact to six digits, with its sign."""
    return f"{value:+.6g}"


def measured(value: float | None) -> str:
    """Return seconds or GPU-hours, or that nobody measured them."""
    return "not measured" if value is None else f"{value:.4g}"


def known(value: int | None) -> str:
    """Return a count, or that it is not known."""
    return "unknown" if value is None else str(value)


def scalar(value: str | float) -> str:
    """Return a measured value: numbers to six digits, a digest by its beginning."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else short(str(value))


def short(text: str) -> str:
    """Return a text with every SHA-256 cut to twelve digits."""
    return _DIGEST.sub(r"\1…", text)


def when(at: str | None) -> str:
    """Return an ISO time to the second, without its zone, which the heading names."""
    return "unknown" if at is None else at[:19].replace("T", " ")


def words(text: str) -> str:
    """Return a name of the contract in words."""
    return text.replace("_", " ")


def line(text: str) -> Markup:
    """Return a text as one line of Markdown in which nothing is markup."""
    flat = html.escape(" ".join(text.split()), quote=False)
    return Markup(_MARKDOWN.sub(r"\\\1", flat))


def _as_line(value: object) -> object:
    """Escape what a Markdown template prints without saying how."""
    return line(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def fenced(text: str) -> Markup:
    """Return a text as a code block that the text itself cannot close."""
    longest = max((len(found) for found in _FENCE.findall(text)), default=2)
    fence = "`" * max(3, longest + 1)
    return Markup(f"{fence}text\n{text}\n{fence}")


FILTERS: Mapping[str, Callable[..., str]] = {
    "number": number,
    "score": score,
    "signed": signed,
    "signed_short": signed_short,
    "measured": measured,
    "known": known,
    "value": scalar,
    "short": short,
    "when": when,
    "words": words,
    "fenced": fenced,
}
"""What the templates call."""
