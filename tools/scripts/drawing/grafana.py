"""Grafana's processing of a dashboard before drawing: intervals, variables, names, colours."""

import re
from dataclasses import dataclass, field

# Colours named only in Grafana, and the palette that series use in turn.
COLOURS = {
    "green": "#73BF69", "yellow": "#F2CC0C", "orange": "#FF9830", "red": "#F2495C", "blue": "#5794F2", "purple": "#B877D9",
    "text": "#24292E", "light-blue": "#8AB8FF", "dark-red": "#C4162A",
}
PALETTE = [
    "#73BF69", "#F2CC0C", "#8AB8FF", "#FF780A", "#F2495C", "#5794F2", "#B877D9", "#705DA0", "#37872D", "#FADE2A",
    "#447EBC", "#C15C17", "#890F02", "#0A437C", "#6D1F62", "#584477", "#B7DBAB", "#F4D598", "#70DBED", "#F9BA8F",
]
# Default thresholds of a panel.
DEFAULT_STEPS = [{"value": None, "color": "green"}, {"value": 80, "color": "red"}]
# Steps that Grafana chooses from, in seconds.
NICE_INTERVALS = [1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400]
# Default query step of an annotation, in seconds.
ANNOTATION_STEP = 60
# Maximum points of a series in Prometheus.
POINTS_MAX = 11_000


class NotDrawn(Exception):
    """A dashboard has a feature that this program does not support."""


@dataclass(frozen=True)
class Window:
    """The shown time range, in seconds, and the scrape interval."""

    start: int
    end: int
    scrape: int

    def step(self, pixels):
        """Seconds between two points of a panel of this width."""
        wanted = (self.end - self.start) / pixels
        fits = (interval for interval in NICE_INTERVALS if interval >= wanted)
        return max(next(fits, NICE_INTERVALS[-1]), self.scrape)

    def moments(self, step):
        """The times of a panel's points: multiples of the step."""
        return range(self.start // step * step, self.end // step * step + 1, step)


@dataclass
class Series:
    """A line, a value or a row, with its name."""

    name: str
    labels: dict
    values: dict
    query: str
    colour: str = field(default=COLOURS["text"])

    def is_empty(self):
        """Whether there is nothing to draw."""
        return all(value is None for value in self.values.values())

    def last(self):
        """The newest value."""
        return [value for value in self.values.values() if value is not None][-1]


def colour(name):
    """The colour of a name."""
    return COLOURS.get(name, name)


def annotation_step(annotation, window):
    """Query step of an annotation in seconds; larger where Prometheus would return too many points."""
    step = annotation.get("step", f"{ANNOTATION_STEP}s")
    if not re.fullmatch(r"[1-9]\d*s", step):
        raise NotDrawn(f"{annotation['name']}: the step {step} is not in seconds")
    return max(int(step[:-1]), -(-(window.end - window.start) // (POINTS_MAX - 1)))


def prepared(expression, dashboard, window, step):
    """An expression with the values of all variables."""
    values = {
        "__rate_interval": f"{max(step + window.scrape, 4 * window.scrape)}s",
        "__interval": f"{step}s",
        "__range": f"{window.end - window.start}s",
        **_choices(dashboard),
    }

    def value(found):
        name = found.group(1) or found.group(2)
        if name not in values:
            raise NotDrawn(f"the variable ${name} is not defined")
        return values[name]

    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", value, expression)


def _choices(dashboard):
    """Variables of the dashboard, with the selection "all"."""
    variables = dashboard["templating"]["list"]
    return {one["name"]: one.get("allValue") or ".*" for one in variables if one["type"] == "query"}


def name_of(labels, legend, expression):
    """Name of a series."""
    if legend:
        return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found.group(1), ""), legend)
    matchers = ", ".join(f'{key}="{value}"' for key, value in labels.items() if key != "__name__")
    return labels.get("__name__", "") + f"{{{matchers}}}" if labels else expression


def colour_by_steps(value, defaults):
    """The colour of a value by the thresholds."""
    name = "text"
    for step in defaults.get("thresholds", {}).get("steps", DEFAULT_STEPS):
        if step["value"] is None or value >= step["value"]:
            name = step["color"]
    return colour(name)


def appearance(value, defaults, written):
    """Text and colour of a value: by its mapping, otherwise as formatted by `written` and by the thresholds."""
    for mapping in defaults.get("mappings", []):
        one = mapping["options"].get(f"{value:g}")
        if one:
            return one["text"], colour(one["color"])
    return written, colour_by_steps(value, defaults)


def colour_series(series, config):
    """Gives each series a colour: by its name, or the next one."""
    for index, one in enumerate(series):
        one.colour = PALETTE[index % len(PALETTE)]
        for override in config["overrides"]:
            if override["matcher"]["options"] == one.name:
                one.colour = colour(override["properties"][0]["value"]["fixedColor"])
