"""The experiments of the capstone."""
