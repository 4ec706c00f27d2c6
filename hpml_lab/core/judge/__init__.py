"""Exercises: checks that never raise and change nothing, known mistakes as edits of the right answer, and predictions."""
