"""The steps of a lab, and the report that they make."""
