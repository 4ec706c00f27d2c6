"""What several experiments share: histograms of small gradients."""
