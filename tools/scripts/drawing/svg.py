"""Pieces of an SVG."""

from html import escape

# Width of a letter relative to its font size: a little more than the average.
_LETTER_WIDTH = 0.58


def element(name, inside="", **attributes):
    """An element; `_` in names of attributes stands for `-`, `class_` for `class`."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"' for key, value in attributes.items())
    return f"<{name}{written}>{inside}</{name}>" if inside else f"<{name}{written}/>"


def text(x, y, label, size=12, **attributes):
    """Text that begins at a point, or is anchored there."""
    return element("text", escape(label), x=x, y=y, font_size=size, **attributes)


def width_of(label, size=12):
    """Approximate width of a text."""
    return len(label) * size * _LETTER_WIDTH


def cut(label, width, size=12):
    """Text, truncated to the available width."""
    room = int(width / (size * _LETTER_WIDTH))
    return label if len(label) <= room else label[: max(room - 1, 0)] + "…"


def path(points, **attributes):
    """A line through points."""
    return element("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), **attributes)


def tooltip(label):
    """Tooltip."""
    return element("title", escape(label))


def _value(value):
    return f"{value:.1f}".rstrip("0").rstrip(".") if isinstance(value, float) else escape(str(value))
