"""What several experiments share: networks, and comparisons whose states take turns."""
