"""What a DeepSpeed JSON means, and two hosts on one machine."""
