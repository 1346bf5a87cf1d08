"""Client for Prometheus queries."""

import json
import math
import urllib.error
import urllib.parse
import urllib.request

PATIENCE_SECONDS = 30


class Unreachable(Exception):
    """No Prometheus answers at the address."""


class Refused(Exception):
    """Prometheus refuses to evaluate an expression."""


class Prometheus:
    """A Prometheus, given by its address."""

    def __init__(self, address):
        self.address = address.rstrip("/")

    def now(self, expression, time):
        """Pairs of labels and the value at `time`."""
        answer = self._ask("query", query=expression, time=time)
        if answer["resultType"] == "scalar":
            return [({}, _number(answer["result"][1]))]
        return [(one["metric"], _number(one["value"][1])) for one in answer["result"]]

    def course(self, expression, start, end, step):
        """Pairs of labels and values by time."""
        answer = self._ask("query_range", query=expression, start=start, end=end, step=step)
        return [(one["metric"], {time: _number(value) for time, value in one["values"]}) for one in answer["result"]]

    def _ask(self, path, **arguments):
        body = urllib.parse.urlencode(arguments).encode()
        try:
            with urllib.request.urlopen(f"{self.address}/api/v1/{path}", body, PATIENCE_SECONDS) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as refusal:
            raise Refused(_reason(refusal)) from None
        except (OSError, ValueError, KeyError) as error:
            raise Unreachable(f"{self.address} does not answer as a Prometheus: {error}") from None


def _reason(refusal):
    """Error message in the body of a refusal; the status if the body is not from Prometheus."""
    try:
        return json.load(refusal)["error"]
    except (ValueError, KeyError):
        return str(refusal)


def _number(text):
    """A sample; None if it is not a number that can be drawn."""
    value = float(text)
    return value if math.isfinite(value) else None
