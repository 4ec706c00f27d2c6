"""The exercises of the capstone."""
