"""The checks of notebook 07's exercises. All run in this process and without waiting; what could block has a time limit."""
