"""What several experiments use: DeepSpeed on ranks that end soon."""
