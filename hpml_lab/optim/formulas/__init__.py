"""The update rules as printed, by name, with their arithmetic; how an optimizer explains itself; its colors in figures."""
