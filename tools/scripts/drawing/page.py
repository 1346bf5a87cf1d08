"""A whole dashboard: its data, and its picture."""

from html import escape

from . import grafana, panels, svg
from .prometheus import Refused

WIDTH = 1440
COLUMNS = 24
GAP = 8
ROW = 30
MARGIN = 16
TITLE_HEIGHT = 44
FOOT_LINE = 18
NO_DATA = "No data"
STYLE = (
    "text{font-family:Inter,Helvetica,Arial,'DejaVu Sans',sans-serif;fill:#24292e}"
    ".panel{fill:#fff;stroke:#dcdfe3}.empty{fill:#fff4f4;stroke:#c4162a;stroke-width:2;stroke-dasharray:6 4}"
    ".heading{font-weight:600}.message{fill:#c4162a;text-anchor:middle}.warning{fill:#c4162a}"
    ".axis,.small{fill:#6e7780}.grid{stroke:#e8eaed;fill:none}"
    ".mark{stroke-dasharray:4 3;fill:none}.region{fill-opacity:.1}"
)


def draw(dashboard, prometheus, window):
    """The SVG of a dashboard, and warnings about panels without data."""
    marks = _marks(dashboard, prometheus, window)
    pictures, warnings = [], []
    for panel in dashboard["panels"]:
        box = _place(panel["gridPos"])
        if panel["type"] == "row":
            pictures.append(panels.draw_heading(panel, box))
            continue
        panels.check(panel)
        picture, warning = _panel(panel, box, dashboard, prometheus, window, marks)
        pictures.append(picture)
        if warning:
            warnings.append(f"{dashboard['title']}: {panel['title']}: {warning}")
    return _sheet(dashboard, pictures, marks, window), warnings


def html(dashboard, picture):
    """A page with only the picture."""
    title = escape(dashboard["title"])
    return f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>\n<body>{picture}</body></html>\n'


def _panel(panel, box, dashboard, prometheus, window, marks):
    """The picture of a panel, and a warning if it has no data."""
    try:
        series = _series(panel, box, dashboard, prometheus, window)
    except Refused as refusal:
        return panels.draw_message(panel, box, str(refusal)), str(refusal)
    if not series:
        return panels.draw_message(panel, box, NO_DATA), NO_DATA
    return panels.draw(panel, box, series, marks, window), None


def _place(position):
    """The rectangle of a place in the grid."""
    column = (WIDTH - 2 * MARGIN + GAP) / COLUMNS
    row = ROW + GAP
    return panels.Box(
        MARGIN + position["x"] * column,
        TITLE_HEIGHT + position["y"] * row,
        position["w"] * column - GAP,
        position["h"] * row - GAP,
    )


def _series(panel, box, dashboard, prometheus, window):
    """All series of a panel that have data."""
    step = window.step(box.width)
    moments = window.moments(step)
    found = []
    for target in panel["targets"]:
        expression = grafana.prepared(target["expr"], dashboard, window, step)
        if target["instant"]:
            answer = [(labels, {window.end: value}) for labels, value in prometheus.now(expression, window.end)]
        else:
            answer = prometheus.course(expression, moments[0], moments[-1], step)
            answer = [(labels, {moment: values.get(moment) for moment in moments}) for labels, values in answer]
        for labels, values in answer:
            name = grafana.name_of(labels, target["legendFormat"], expression)
            found.append(grafana.Series(name, labels, values, target["refId"]))
    found = [one for one in found if not one.is_empty()]
    grafana.colour_series(found, panel["fieldConfig"])
    return found


def _marks(dashboard, prometheus, window):
    """The annotations; consecutive moments form one interval."""
    marks = []
    for annotation in dashboard["annotations"]["list"]:
        step = grafana.annotation_step(annotation, window)
        moments = window.moments(step)
        expression = grafana.prepared(annotation["expr"], dashboard, window, step)
        for labels, values in prometheus.course(expression, moments[0], moments[-1], step):
            text = grafana.name_of(labels, annotation["textFormat"], expression)
            times = [time for time, value in values.items() if value and time >= window.start]
            starts = [time for time in times if time - step not in times]
            ends = [time for time in times if time + step not in times]
            look = (annotation["titleFormat"], text, grafana.colour(annotation["iconColor"]))
            marks.extend(panels.Mark(start, end, *look) for start, end in zip(starts, ends))
    return sorted(marks, key=lambda mark: (mark.start, mark.title, mark.text))


def _sheet(dashboard, pictures, marks, window):
    """The whole picture: its subject at the top, the annotations as text at the bottom."""
    bottom = max(_place(panel["gridPos"]).bottom for panel in dashboard["panels"])
    times = f"{panels.date(window.start)} to {panels.date(window.end)} UTC"
    parts = [
        svg.element("style", STYLE),
        svg.element("rect", width="100%", height="100%", fill="#f4f5f5"),
        svg.text(MARGIN, 28, dashboard["title"], 20, class_="heading"),
        svg.text(WIDTH - MARGIN, 28, times, 13, class_="small", text_anchor="end"),
        *pictures,
    ]
    for index, mark in enumerate(marks):
        label = f"{panels.clock(mark.start)}  {mark.title}: {mark.text}"
        parts.append(svg.text(MARGIN, bottom + 22 + index * FOOT_LINE, label, class_="small"))
    height = bottom + MARGIN + len(marks) * FOOT_LINE
    return svg.element("svg", "\n".join(parts), xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {height:g}", role="img")
