"""Panels, each by its type."""

import math
from dataclasses import dataclass
from datetime import datetime, timezone

from . import grafana, svg, units

HEADER = 36
PADDING = 8
LEGEND_ROW = 18
# Maximum share of a panel for its legend; the rest of the legend scrolls.
LEGEND_PART = 0.35
AXIS_WIDTH = 62
AXIS_HEIGHT = 20
# Margin for half of the last time label.
RIGHT_ROOM = 14
TICK_DISTANCE = 45
TABLE_ROW = 26
STATE_LABEL_PART = 0.4


@dataclass(frozen=True)
class Box:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self):
        return self.x + self.width

    @property
    def bottom(self):
        return self.y + self.height

    def without(self, top=0, bottom=0, left=0, right=0):
        """The remaining rectangle."""
        return Box(self.x + left, self.y + top, self.width - left - right, self.height - top - bottom)


@dataclass(frozen=True)
class Mark:
    """An annotation: a moment, or an interval."""

    start: int
    end: int
    title: str
    text: str
    colour: str


def draw(panel, box, series, marks, window):
    """A panel with its frame and its content."""
    title = svg.cut(panel["title"], box.width - 2 * PADDING, 14)
    frame = svg.element("rect", class_="panel", x=box.x, y=box.y, width=box.width, height=box.height, rx=2)
    heading = svg.text(box.x + PADDING, box.y + 20, title, 14, class_="heading")
    inside = box.without(top=HEADER, bottom=PADDING, left=PADDING, right=PADDING)
    content = _DRAWN[panel["type"]](panel, inside, series, marks, window)
    return frame + heading + content


def draw_heading(panel, box):
    """The heading of a section of the dashboard."""
    return svg.text(box.x, box.y + 21, "⌄ " + panel["title"], 16, class_="heading")


def draw_message(panel, box, message):
    """A panel with only text, in a conspicuous frame."""
    frame = svg.element("rect", class_="empty", x=box.x, y=box.y, width=box.width, height=box.height, rx=2)
    heading = svg.text(box.x + PADDING, box.y + 20, svg.cut(panel["title"], box.width - 2 * PADDING, 14), 14, class_="heading")
    middle = svg.text(box.x + box.width / 2, box.y + box.height / 2 + 10, svg.cut(message, box.width, 16), 16, class_="message")
    return frame + heading + middle


def _timeseries(panel, box, series, marks, window):
    """Lines over time, stacked if configured."""
    defaults = panel["fieldConfig"]["defaults"]
    custom = defaults.get("custom", {})
    legend, legend_height = _legend(box, series)
    plot = box.without(bottom=legend_height + AXIS_HEIGHT, left=AXIS_WIDTH, right=RIGHT_ROOM)
    is_stacked = custom.get("stacking", {}).get("mode") == "normal"
    lower, upper = _stacked(series) if is_stacked else ([{} for _ in series], [one.values for one in series])
    ticks = _ticks(upper, defaults, plot.height)
    scale = _Scale(plot, window, ticks[0], ticks[-1])
    parts = [_grid(scale, ticks, defaults["unit"]), _time_axis(scale), legend]
    opacity = custom.get("fillOpacity", 0) / 100
    parts.extend(_line(one, above, below, scale, opacity) for one, above, below in zip(series, upper, lower))
    parts.extend(_mark(mark, scale) for mark in marks)
    return "".join(parts)


@dataclass(frozen=True)
class _Scale:
    """Maps times and values to points."""

    box: Box
    window: grafana.Window
    low: float
    high: float

    def x(self, time):
        return self.box.x + (time - self.window.start) / (self.window.end - self.window.start) * self.box.width

    def y(self, value):
        within = min(max(value, self.low), self.high)
        return self.box.bottom - (within - self.low) / (self.high - self.low) * self.box.height


def _stacked(series):
    """The lower and the upper edges of stacked series."""
    lower, upper, heights = [], [], {}
    for one in series:
        present = {time: value for time, value in one.values.items() if value is not None}
        lower.append({time: heights.get(time, 0) for time in present})
        heights = {**heights, **{time: heights.get(time, 0) + value for time, value in present.items()}}
        upper.append({time: heights[time] if time in present else None for time in one.values})
    return lower, upper


def _ticks(courses, defaults, height):
    """Values with a grid line, including the ends of the axis."""
    values = [value for course in courses for value in course.values() if value is not None]
    low = defaults.get("min", min(values))
    high = defaults.get("max", max(values))
    if high <= low:
        high = low + 1
    step = _nice((high - low) / max(height // TICK_DISTANCE, 2), defaults["unit"])
    first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
    return [index * step for index in range(first, last + 1)]


def _nice(step, unit):
    """The next round step."""
    if unit in units.BINARY_UNITS:
        return 2 ** math.ceil(math.log2(step))
    base = 10 ** math.floor(math.log10(step))
    return base * next(factor for factor in [1, 2, 5, 10] if factor * base >= step * 0.999)


def _grid(scale, ticks, unit):
    """Horizontal grid lines, with their values at the left."""
    parts = []
    for tick in ticks:
        y = scale.y(tick)
        parts.append(svg.path([(scale.box.x, y), (scale.box.right, y)], class_="grid"))
        parts.append(svg.text(scale.box.x - 6, y + 4, units.written(tick, unit), 11, class_="axis", text_anchor="end"))
    return "".join(parts)


def _time_axis(scale):
    """Time labels at the bottom."""
    room = scale.box.width / 70
    step = next((it for it in grafana.NICE_INTERVALS if (scale.window.end - scale.window.start) / it <= room), grafana.NICE_INTERVALS[-1])
    moments = range(-(-scale.window.start // step) * step, scale.window.end + 1, step)
    letters = 5 if step >= 60 else 8
    return "".join(
        svg.text(scale.x(moment), scale.box.bottom + 15, clock(moment)[:letters], 11, class_="axis", text_anchor="middle")
        for moment in moments
    )


def clock(moment):
    """The time of day."""
    return datetime.fromtimestamp(moment, timezone.utc).strftime("%H:%M:%S")


def date(moment):
    """The day with its time."""
    return datetime.fromtimestamp(moment, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def _line(series, upper, lower, scale, opacity):
    """A series: its segments without a gap, filled down to the series below it."""
    parts = []
    for run in _runs(upper):
        edge = [(scale.x(time), scale.y(upper[time])) for time in run]
        if opacity:
            floor = [(scale.x(time), scale.y(lower.get(time, max(scale.low, 0)))) for time in reversed(run)]
            parts.append(svg.path(edge + floor, fill=series.colour, fill_opacity=opacity, stroke="none"))
        if len(run) == 1:
            parts.append(svg.element("circle", cx=edge[0][0], cy=edge[0][1], r=2, fill=series.colour))
        else:
            parts.append(svg.path(_corners(edge), fill="none", stroke=series.colour, stroke_width=1.5))
    return svg.element("g", svg.tooltip(series.name) + "".join(parts))


def _runs(values):
    """The times of each segment without a gap."""
    run = []
    for time, value in values.items():
        if value is not None:
            run.append(time)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _corners(points):
    """The points of a line without the inner points of horizontal pieces."""
    inner = (
        point for before, point, after in zip(points, points[1:], points[2:]) if not before[1] == point[1] == after[1]
    )
    return [points[0], *inner, points[-1]]


def _mark(mark, scale):
    """An annotation: a line for a moment, an area for an interval."""
    left, right = scale.x(mark.start), scale.x(mark.end)
    tooltip = svg.tooltip(f"{clock(mark.start)} {mark.title}: {mark.text}")
    area = svg.element("rect", x=left, y=scale.box.y, width=max(right - left, 0.1), height=scale.box.height, class_="region", fill=mark.colour)
    line = svg.path([(left, scale.box.y), (left, scale.box.bottom)], class_="mark", stroke=mark.colour)
    foot = svg.path([(left - 4, scale.box.bottom + 5), (left, scale.box.bottom), (left + 4, scale.box.bottom + 5)], fill=mark.colour)
    return svg.element("g", tooltip + area + line + foot)


def _legend(box, series):
    """The names of all series, row by row, and their height. Mentions a part that needs scrolling."""
    rows, used = [[]], 0
    for one in series:
        width = svg.width_of(one.name) + 32
        if rows[-1] and used + width > box.width:
            rows.append([])
            used = 0
        rows[-1].append((used, one))
        used += width
    fits = max(int(box.height * LEGEND_PART / LEGEND_ROW), 1)
    hidden = sum(len(row) for row in rows[fits:])
    rows = rows[:fits]
    height = len(rows) * LEGEND_ROW
    parts = []
    for index, row in enumerate(rows):
        y = box.bottom - height + index * LEGEND_ROW + 14
        parts.extend(_legend_entry(box.x + offset, y, one, box.right) for offset, one in row)
    if hidden:
        parts.append(svg.text(box.right, box.bottom, f"{hidden} more below", 11, class_="warning", text_anchor="end"))
    return "".join(parts), height


def _legend_entry(x, y, series, right):
    dash = svg.element("rect", x=x, y=y - 5, width=14, height=3, fill=series.colour)
    return dash + svg.text(x + 19, y, svg.cut(series.name, right - x - 19), class_="legend")


def _stat(panel, box, series, _marks, _window):
    """The newest value of each series; with names if there are several, or if the names are the content."""
    defaults = panel["fieldConfig"]["defaults"]
    mode = panel.get("options", {}).get("textMode", "auto")
    height = box.height / len(series)
    parts = []
    for index, one in enumerate(series):
        row = Box(box.x, box.y + index * height, box.width, height)
        parts.append(_figure(one, row, defaults, mode, len(series) > 1))
    return "".join(parts)


def _figure(series, box, defaults, mode, has_others):
    """One value, as large as possible."""
    value = series.last()
    label, colour = grafana.appearance(value, defaults, units.written(value, defaults["unit"]))
    figure = series.name if mode == "name" else label
    name = series.name if has_others and mode == "auto" else ""
    room = box.width - svg.width_of(name)
    size = max(min(box.height * 0.7, 44, 0.92 * room / max(svg.width_of(figure, 1), 1)), 10)
    middle = box.y + box.height / 2
    place = (box.right, "end") if name else (box.x + box.width / 2, "middle")
    style = {"style": f"fill:{colour}", "class_": "heading", "text_anchor": place[1]}
    large = svg.text(place[0], middle + size * 0.35, figure, size, **style)
    return large + (svg.text(box.x, middle + 4, name) if name else "")


def _table(panel, box, series, _marks, window):
    """The labels and the values of series; series with the same labels form one row."""
    unit = panel["fieldConfig"]["defaults"]["unit"]
    merged = {}
    for one in series:
        row = merged.setdefault(tuple(sorted(one.labels.items())), {"Time": clock(window.end), **one.labels})
        row[_value_column(panel, one)] = units.written(one.last(), unit)
    rows = list(merged.values())
    columns = list(dict.fromkeys(column for row in rows for column in row))
    titles = {column: column for column in columns}
    for options in (it["options"] for it in panel.get("transformations", []) if it["id"] == "organize"):
        columns = [it for it in columns if not options["excludeByName"].get(it)]
        columns.sort(key=lambda it: options["indexByName"].get(it, len(titles)))
        titles.update(options["renameByName"])
    lines = [[row.get(column, "") for column in columns] for row in rows]
    return _rows_of_text(box, [[titles[column] for column in columns], *lines])


def _value_column(panel, series):
    """Grafana's column name for the values of a query."""
    return "Value" if len(panel["targets"]) == 1 else f"Value #{series.query}"


def _rows_of_text(box, lines):
    """Rows in columns of the same width, as many as fit; the first one has the titles."""
    fits = int(box.height / TABLE_ROW)
    width = box.width / len(lines[0])
    parts = []
    for index, line in enumerate(lines[:fits]):
        y = box.y + index * TABLE_ROW + 17
        look = {"class_": "heading"} if index == 0 else {}
        parts.extend(svg.text(box.x + at * width, y, svg.cut(cell, width - 6), **look) for at, cell in enumerate(line))
        parts.append(svg.path([(box.x, y + 8), (box.right, y + 8)], class_="grid"))
    if len(lines) > fits:
        parts.append(svg.text(box.right, box.bottom, f"{len(lines) - fits} more below", 11, class_="warning", text_anchor="end"))
    return "".join(parts)


def _state_timeline(panel, box, series, marks, window):
    """A row for each series, coloured by its value over time."""
    defaults = panel["fieldConfig"]["defaults"]
    widest = max(svg.width_of(one.name) for one in series)
    plot = box.without(bottom=AXIS_HEIGHT, left=min(widest + 8, box.width * STATE_LABEL_PART), right=RIGHT_ROOM)
    scale = _Scale(plot, window, 0, 1)
    height = plot.height / len(series)
    parts = [_time_axis(scale)]
    for index, one in enumerate(series):
        row = Box(plot.x, plot.y + index * height, plot.width, height)
        label = svg.cut(one.name, plot.x - box.x - 6)
        parts.append(svg.text(plot.x - 6, row.y + height / 2 + 4, label, text_anchor="end"))
        parts.extend(_states(one, row, scale, defaults))
    parts.extend(_mark(mark, scale) for mark in marks)
    return "".join(parts)


def _states(series, row, scale, defaults):
    """The segments of equal consecutive values."""
    times = list(series.values)
    step = times[1] - times[0]
    start = times[0]
    for time, after in zip(times, [*times[1:], None]):
        value = series.values[time]
        if after is not None and series.values[after] == value:
            continue
        if value is not None:
            left, right = max(scale.x(start), row.x), min(scale.x(time + step), row.right)
            yield _state(Box(left, row.y + row.height * 0.1, right - left, row.height * 0.8), value, defaults)
        start = after


def _state(box, value, defaults):
    label, colour = grafana.appearance(value, defaults, units.written(value, defaults["unit"]))
    area = svg.element("rect", svg.tooltip(label), x=box.x, y=box.y, width=box.width, height=box.height, fill=colour, fill_opacity=0.7)
    fits = svg.width_of(label) + 8 < box.width
    return area + (svg.text(box.x + 5, box.y + box.height / 2 + 4, label) if fits else "")


_DRAWN = {"timeseries": _timeseries, "stat": _stat, "table": _table, "state-timeline": _state_timeline}


def check(panel):
    """Raises an error for features that would silently be missing from the picture."""
    defaults = panel["fieldConfig"]["defaults"]
    known = {
        "type": (set(_DRAWN), [panel["type"]]),
        "unit": ({defaults["unit"]} if units.is_known(defaults["unit"]) else set(), [defaults["unit"]]),
        "option": ({"textMode"}, panel.get("options", {})),
        "field option": ({"unit", "min", "max", "thresholds", "mappings", "custom"}, defaults),
        "way of drawing": ({"stacking", "fillOpacity"}, defaults.get("custom", {})),
        "kind of mapping": ({"value"}, [it["type"] for it in defaults.get("mappings", [])]),
        "kind of override": ({"byName"}, [it["matcher"]["id"] for it in panel["fieldConfig"]["overrides"]]),
        "transformation": ({"merge", "organize"}, [it["id"] for it in panel.get("transformations", [])]),
    }
    for what, (drawn, used) in known.items():
        for one in set(used) - drawn:
            raise grafana.NotDrawn(f"{panel['title']}: the {what} {one} is not drawn yet")
