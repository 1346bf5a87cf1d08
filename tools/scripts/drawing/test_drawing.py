"""All dashboards can be drawn, with the same content as in Grafana.

    PYTHONPATH=scripts python3 -m unittest drawing.test_drawing
"""

import json
import unittest
from pathlib import Path
from xml.etree import ElementTree

from . import grafana, page, units

DASHBOARDS = Path(__file__).resolve().parents[3] / "deploy/grafana/dashboards"
WINDOW = grafana.Window(start=1_000_000, end=1_000_900, scrape=10)


class Stub:
    """A Prometheus that answers every query with two series, or with none."""

    def __init__(self, labels=({"instance": "a"}, {"instance": "b"})):
        self.labels = labels

    def now(self, _expression, _time):
        return [(labels, 1.0) for labels in self.labels]

    def course(self, _expression, start, end, step):
        return [(labels, {time: 1.0 for time in range(start, end + 1, step)}) for labels in self.labels]


class Drawing(unittest.TestCase):
    def test_every_dashboard_is_drawn_and_panels_without_data_are_named(self):
        files = sorted(DASHBOARDS.glob("*.json"))
        self.assertTrue(files)
        for file in files:
            dashboard = json.loads(file.read_text())
            picture, warnings = page.draw(dashboard, Stub(), WINDOW)
            self.assertEqual(warnings, [])
            self.assertIn("viewBox", ElementTree.fromstring(picture).attrib)
            _, warnings = page.draw(dashboard, Stub(labels=()), WINDOW)
            panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
            self.assertEqual(len(warnings), len(panels))

    def test_unsupported_panels_and_undefined_variables_are_refused(self):
        dashboard = json.loads((DASHBOARDS / "overview.json").read_text())
        dashboard["panels"][0]["type"] = "geomap"
        with self.assertRaisesRegex(grafana.NotDrawn, "the type geomap is not drawn"):
            page.draw(dashboard, Stub(), WINDOW)
        with self.assertRaisesRegex(grafana.NotDrawn, r"the variable \$gone is not defined"):
            grafana.prepared("up[$gone]", {"templating": {"list": []}}, WINDOW, 10)

    def test_intervals_follow_the_width_and_how_often_targets_are_read(self):
        self.assertEqual(WINDOW.step(700), 10)
        self.assertEqual(grafana.Window(0, 86400, 10).step(700), 300)
        empty = {"templating": {"list": []}}
        self.assertEqual(grafana.prepared("rate(x[$__rate_interval])", empty, WINDOW, 10), "rate(x[40s])")
        self.assertEqual(grafana.prepared("rate(x[$__rate_interval])", empty, WINDOW, 300), "rate(x[310s])")

    def test_annotations_are_asked_for_no_more_often_than_prometheus_answers(self):
        annotation = {"name": "a", "step": "10s"}
        self.assertEqual(grafana.annotation_step(annotation, WINDOW), 10)
        self.assertEqual(grafana.annotation_step(annotation, grafana.Window(0, 7 * 86400, 10)), 55)
        self.assertEqual(grafana.annotation_step({"name": "a"}, WINDOW), grafana.ANNOTATION_STEP)

    def test_names_are_made_of_labels(self):
        labels = {"__name__": "up", "job": "a"}
        self.assertEqual(grafana.name_of(labels, "{{job}} {{gone}}!", "up"), "a !")
        self.assertEqual(grafana.name_of(labels, "", "up"), 'up{job="a"}')
        self.assertEqual(grafana.name_of({}, "", "sum(up)"), "sum(up)")

    def test_numbers_have_their_units(self):
        cases = [
            (0, "s", "0 s"), (0.0123, "s", "12.3 ms"), (100, "s", "1.67 mins"), (1536, "bytes", "1.5 KiB"),
            (0.5, "percentunit", "50%"), (1234, "short", "1.23 K"), (1234, "none", "1234"),
            (0, "ops", "0 ops/s"), (61, "celsius", "61 °C"),
        ]
        for value, unit, expected in cases:
            self.assertEqual(units.written(value, unit), expected)

    def test_thresholds_that_a_panel_does_not_have_are_grafanas(self):
        self.assertEqual(grafana.colour_by_steps(79, {}), grafana.COLOURS["green"])
        self.assertEqual(grafana.colour_by_steps(80, {}), grafana.COLOURS["red"])


if __name__ == "__main__":
    unittest.main()
