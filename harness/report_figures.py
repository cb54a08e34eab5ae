"""The figures of a report: matplotlib SVG that takes its colours from the page's style.

Drawn with a fixed hash salt, no date and text as text, so equal numbers give equal bytes. Colours
are placeholders while drawing and become CSS variables, so one figure serves light, dark and print.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from harness.report_model import ArmScore, ArmTraining, CriterionReport, Report, StepPoint

VARIABLES = {
    "#010203": "--ink",
    "#020304": "--muted",
    "#030405": "--band",
    "#040506": "--rule",
    "#110001": "--arm-1",
    "#110002": "--arm-2",
    "#110003": "--arm-3",
    "#110004": "--arm-4",
}
"""Placeholder colours and the CSS variables that replace them."""
INK, MUTED, BAND, RULE, *ARMS = VARIABLES
DASHES = ("-", "--", ":", "-.")
"""Line styles of the arms, so that colour is never the only difference."""
SETTINGS: Any = {
    "svg.hashsalt": "report",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "text.parse_math": False,
    "text.usetex": False,
}
PANELS: tuple[tuple[str, str], ...] = (
    ("reward", "mean reward"),
    ("accuracy", "accuracy"),
    ("format", "format kept"),
    ("truncation", "truncated"),
    ("contributors", "effective contributors"),
    ("gap", "largest sampler–trainer gap, nats"),
    ("loss", "loss:sum"),
    ("length", "mean length, tokens"),
)
"""Fields of a step that are drawn, and what each is called."""


@dataclass(frozen=True)
class Drawing:
    """One figure: its name in the page, what it shows in words, and the SVG element."""

    name: str
    alt: str
    svg: str


@dataclass(frozen=True)
class _Plan:
    name: str
    alt: str
    draw: Callable[[Axes], None]
    width: float = 5.2
    height: float = 2.6
    layout: Literal["constrained"] | None = "constrained"

    def drawing(self, *, drawn: bool) -> Drawing:
        """Return the figure; without its drawing where only the page around it is wanted."""
        return Drawing(self.name, self.alt, _svg(self) if drawn else "")


def interval_figures(report: Report, *, drawn: bool = True) -> list[Drawing]:
    """Return the arms with their intervals, and each criterion with its margin shaded.

    Args:
        report: the report.
        drawn: False gives names and words without drawings.
    """
    found = [_scores_figure(report.scores)] if report.scores else []
    planned = [*found, *map(_criterion_figure, report.criteria)]
    return [plan.drawing(drawn=drawn) for plan in planned]


def _scores_figure(scores: Sequence[ArmScore]) -> _Plan:
    names = [f"{score.arm}\n{score.role}" for score in scores]

    def draw(axes: Axes) -> None:
        for at, score in enumerate(scores):
            color = MUTED if score.role.startswith("base model") else INK
            if score.lower is not None and score.upper is not None:
                axes.plot([score.lower, score.upper], [at, at], color=color, linewidth=2)
            axes.plot([score.value], [at], "o", color=color)
        _rows(axes, names)
        axes.set_xlabel(scores[0].metric)

    shown = "; ".join(f"{s.arm} {s.value:.4f}{_between(s.lower, s.upper)}" for s in scores)
    return _Plan("scores", f"Scores by arm. {shown}.", draw, height=0.55 * len(scores) + 0.7)


def _between(lower: float | None, upper: float | None) -> str:
    return "" if lower is None or upper is None else f" [{lower:.4f}, {upper:.4f}]"


def _criterion_figure(criterion: CriterionReport) -> _Plan:
    others = [
        (item.method, item.lower, item.upper)
        for item in criterion.secondary
        if item.lower is not None and item.upper is not None
    ]
    names = ["the rule", *(f"{method}\nsecondary, never decides" for method, _, _ in others)]

    def draw(axes: Axes) -> None:
        ends = [criterion.lower, criterion.upper, criterion.margin, 0.0]
        ends += [end for _, lower, upper in others for end in (lower, upper)]
        spare = 0.08 * (max(ends) - min(ends))
        axes.axvspan(min(ends) - spare, criterion.margin, color=BAND, linewidth=0)
        axes.axvline(criterion.margin, color=INK, linewidth=1, linestyle="--")
        axes.axvline(0.0, color=RULE, linewidth=1)
        axes.plot([criterion.lower, criterion.upper], [0, 0], color=INK, linewidth=3)
        axes.plot([criterion.mean], [0], "o", color=INK)
        for at, (_, lower, upper) in enumerate(others, start=1):
            axes.plot([lower, upper], [at, at], color=MUTED, linewidth=1.5)
        _rows(axes, names)
        for label in axes.get_yticklabels()[1:]:
            label.set_color(MUTED)
        axes.set_xlim(min(ends) - spare, max(ends) + spare)
        axes.set_xlabel(f"{criterion.metric}: treatment against baseline")
        axes.locator_params(axis="x", nbins=6)
        axes.set_title(f"shaded: below the margin {criterion.margin:g}", loc="left")

    secondary = "; ".join(f"{method}{_between(*ends)}" for method, *ends in others) or "none"
    alt = (
        f"{criterion.id}: mean {criterion.mean:+.4f}, interval [{criterion.lower:+.4f},"
        f" {criterion.upper:+.4f}], margin {criterion.margin:+g}, {criterion.state}. Secondary"
        f" intervals, which never decide: {secondary}."
    )
    return _Plan(f"criterion-{criterion.id}", alt, draw, height=0.5 * len(names) + 1.0)


def _rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def curve_figures(report: Report, axis: str, *, drawn: bool = True) -> list[Drawing]:
    """Return one figure a measured quantity, all arms in it.

    Args:
        report: the report.
        axis: ``step`` or ``rollouts``.
        drawn: False gives names and words without drawings.
    """
    return [
        _curve_figure(report.training, field, title, axis).drawing(drawn=drawn)
        for field, title in PANELS
        if any(_known(arm.steps, field) for arm in report.training)
    ]


def _known(steps: Sequence[StepPoint], field: str) -> list[StepPoint]:
    return [point for point in steps if getattr(point, field) is not None]


def _curve_figure(arms: Sequence[ArmTraining], field: str, title: str, axis: str) -> _Plan:
    curves = [(at, arm, _known(arm.steps, field)) for at, arm in enumerate(arms)]
    curves = [(at, arm, points) for at, arm, points in curves if points]

    def draw(axes: Axes) -> None:
        # Fixed: to fit the margins of sixteen figures would take most of the time of drawing.
        axes.set_position((0.14, 0.19, 0.83, 0.67))
        for at, arm, points in curves:
            axes.plot(
                [getattr(point, axis) for point in points],
                [getattr(point, field) for point in points],
                color=ARMS[at % len(ARMS)],
                linestyle=DASHES[at % len(DASHES)],
                linewidth=1.5,
                # One point has no line to be seen by.
                marker="o" if len(points) == 1 else None,
                label=arm.arm,
            )
        axes.set_xlabel(axis)
        axes.set_title(title, loc="left")
        axes.legend(frameon=False, fontsize=8)

    ends = "; ".join(
        f"{arm.arm} from {getattr(points[0], field):.4g} to {getattr(points[-1], field):.4g}"
        for _, arm, points in curves
    )
    return _Plan(f"{field}-by-{axis}", f"{title} by {axis}: {ends}.", draw, width=4.0, layout=None)


def _svg(plan: _Plan) -> str:
    with mpl.rc_context():
        # A person's own matplotlib settings must not change a byte.
        mpl.rcdefaults()
        return _drawn(plan)


def _drawn(plan: _Plan) -> str:
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(plan.width, plan.height), layout=plan.layout)
        FigureCanvasSVG(figure)
        plan.draw(figure.add_subplot())
        stream = io.StringIO()
        none = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(stream, format="svg", metadata=none)
    return _element(stream.getvalue(), plan.name)


def _element(document: str, name: str) -> str:
    """Return the svg element alone, its ids unlike those of other figures, its colours variable."""
    svg = document[document.index("<svg") :].strip()
    # Its style element would hold for the whole page.
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r'(?<=\bid=")|(?<=url\(#)|(?<=href="#)', f"{name}-", svg)
    for placeholder, variable in VARIABLES.items():
        svg = svg.replace(placeholder, f"var({variable})")
    width = re.search(r'width="([\d.]+)pt"', svg)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    size = f' style="max-width: {1.1 * float(width[1]):g}pt"' if width else ""
    return svg.replace("<svg", f'<svg aria-hidden="true" focusable="false"{size}', 1)
