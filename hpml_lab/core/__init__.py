"""The ground floor: what every topic stands on. Imports nothing from the rest of the package."""
