"""What tools/scripts/draw-dashboards draws with."""
