"""What a reader sees: the look of all figures, graphs, figures that follow a slider or grow, progress, a lesson's source."""
