"""For instructors: notebooks of exercises for nbgrader, and a page of what a class got wrong."""
