"""What two experiments load: clips behind a storage model."""
