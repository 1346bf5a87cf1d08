"""Drawing functions of tools/scripts/draw-dashboards."""
