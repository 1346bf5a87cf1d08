"""What scripts/draw-dashboards draws with."""
