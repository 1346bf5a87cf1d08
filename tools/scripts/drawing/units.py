"""Numbers with Grafana's units."""

_SI = [(1e12, " T"), (1e9, " Bil"), (1e6, " Mil"), (1e3, " K"), (1, "")]
_BINARY = [(2**40, " TiB"), (2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"), (1, " B")]
_TIME = [(604800, " weeks"), (86400, " days"), (3600, " hours"), (60, " mins"), (1, " s"), (1e-3, " ms"), (1e-6, " µs"), (1e-9, " ns")]
# By unit id: steps of the scale, each with its suffix, and a suffix after that.
_SCALES = {
    "none": ([(1, "")], ""),
    "short": (_SI, ""),
    "s": (_TIME, ""),
    "bytes": (_BINARY, ""),
    "percentunit": ([(0.01, "%")], ""),
    "ops": (_SI, " ops/s"),
    "reqps": (_SI, " req/s"),
    "celsius": ([(1, " °C")], ""),
}
BINARY_UNITS = {"bytes"}


def is_known(unit):
    """Whether numbers with `unit` can be formatted."""
    return unit in _SCALES


def written(value, unit):
    """`value` formatted with three digits."""
    steps, suffix = _SCALES[unit]
    fits = (step for step in steps if abs(value) >= step[0] * 0.9995)
    divisor, scale = next(fits, steps[-1] if value else _zero(steps))
    return _rounded(value / divisor) + scale + suffix


def _zero(steps):
    """The scale of a value; zero uses the scale of one."""
    return min(steps, key=lambda step: abs(step[0] - 1))


def _rounded(value):
    """Three significant digits, and all digits before the point."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
